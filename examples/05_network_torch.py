"""05: a real network with PyTorch: training code of your own, and a model of your own.

A server and two clients, each a process, on this machine. One client knows the inner ring of
points, the other the outer one; together they learn to tell them apart.

python examples/05_network_torch.py
"""

import multiprocessing
import tempfile

import numpy as np
import torch
from torch import nn

import pisces
from pisces import client, server


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def samples(seed: int, share: float, num: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Points of which a share is on the outer ring."""
    draw = torch.Generator().manual_seed(seed)
    labels = (torch.rand(num, generator=draw) < share).long()
    angles = 2 * torch.pi * torch.rand(num, generator=draw)
    radius = 1.0 + labels + 0.1 * torch.randn(num, generator=draw)
    return torch.stack([radius * angles.cos(), radius * angles.sin()], 1), labels


def arrays(model: nn.Module) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def load(model: nn.Module, weights: dict[str, np.ndarray]) -> None:
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})


def take_part(address: str, number: int, keep: str) -> None:
    torch.set_num_threads(1)
    inputs, labels = samples(number, (0.2, 0.8)[number])
    model, loss = network(), nn.CrossEntropyLoss(reduction="none")

    def train(weights: dict[str, np.ndarray], work: client.Work) -> client.Update:
        load(model, weights)
        torch.manual_seed(work.seed)
        optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate, momentum=0.9)
        first = []
        for epoch in range(work.epochs):
            for batch in torch.randperm(len(inputs)).split(work.batch_size):
                work.check()  # ends here where nobody waits for it any more
                losses = loss(model(inputs[batch]), labels[batch])
                optimizer.zero_grad()
                losses.mean().backward()
                optimizer.step()
                first += losses.tolist() if epoch == 0 else []
        return client.Update(arrays(model), losses=first)

    num = len(inputs)
    client.join(address, train, num_examples=num, insecure=True, name=f"c{number}", keep=keep)


def accuracy(weights: dict[str, np.ndarray]) -> dict[str, float]:
    model, (inputs, labels) = network(), samples(99, 0.5)
    load(model, weights)
    return {"accuracy": float((model(inputs).argmax(1) == labels).float().mean())}


if __name__ == "__main__":
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        clients: list[multiprocessing.process.BaseProcess] = []

        def start_clients(address: str) -> None:
            for number in (0, 1):
                told = (address, number, f"{folder}/{number}")
                clients.append(processes.Process(target=take_part, args=told))
                clients[-1].start()

        served = server.serve(
            "pisces",
            weights=arrays(network()),
            evaluate=accuracy,
            listen="127.0.0.1:0",
            insecure=True,
            ready=start_clients,
            terms=server.Terms(at_least=2),  # who comes too late waits for ever
            concurrency=2,
            plan=pisces.Plan(epochs=2, batch_size=20, learning_rate=0.1),
            stop=pisces.Stop(versions=40, target=0.95),
        )
        for process in clients:
            process.join()
    print(f"accuracy {accuracy(served.weights)['accuracy']:.3f}, {served.summary['reason']}")
    print("clients ended with", *(process.exitcode for process in clients))
