"""04: a real network with training code of your own, in plain numpy.

A server and two clients, each a process, on this machine. The clients know different halves of a
line y = 3x - 1, and together they learn it. Between machines, `pisces certs` makes certificates;
then it is `certs="certs"` and `identity="ann.pem"` in place of `insecure=True`.

python examples/04_network_numpy.py
"""

import multiprocessing
import tempfile

import numpy as np

import pisces
from pisces import client

LINE = {"slope": 3.0, "offset": -1.0}


def samples(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's own points: the left or the right half, a little noisy."""
    rng = np.random.default_rng(number)
    x = rng.uniform(-1, 0, 100) + number
    return x, LINE["slope"] * x + LINE["offset"] + rng.normal(0, 0.05, 100)


def take_part(address: str, number: int, keep: str) -> None:
    x, y = samples(number)

    def train(weights: dict[str, np.ndarray], work: client.Work) -> client.Update:
        rng = np.random.default_rng(work.seed)
        losses = []
        for epoch in range(work.epochs):
            for batch in np.array_split(rng.permutation(len(x)), len(x) // work.batch_size):
                work.check()  # ends here where nobody waits for it any more
                error = weights["slope"] * x[batch] + weights["offset"] - y[batch]
                if epoch == 0:
                    losses.extend(error**2)  # by them Pisces sees whose data is worth most
                weights["slope"] -= work.learning_rate * 2 * np.mean(error * x[batch])
                weights["offset"] -= work.learning_rate * 2 * np.mean(error)
        return client.Update(weights, losses=losses)

    client.join(address, train, num_examples=len(x), insecure=True, name=f"c{number}", keep=keep)


def distance(weights: dict[str, np.ndarray]) -> dict[str, float]:
    return {"loss": float(sum((weights[name] - value) ** 2 for name, value in LINE.items()))}


if __name__ == "__main__":
    from pisces import server  # here, because it needs torch, and clients do not

    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        clients: list[multiprocessing.process.BaseProcess] = []

        def start_clients(address: str) -> None:
            for number in (0, 1):
                told = (address, number, f"{folder}/{number}")
                clients.append(processes.Process(target=take_part, args=told))
                clients[-1].start()

        served = server.serve(
            "fedbuff",
            weights={name: np.zeros((), np.float32) for name in LINE},
            evaluate=distance,
            listen="127.0.0.1:0",
            insecure=True,
            ready=start_clients,
            terms=server.Terms(at_least=2),  # who comes too late waits for ever
            concurrency=2,
            settings={"buffer_size": 2},
            plan=pisces.Plan(epochs=2, batch_size=20, learning_rate=0.1),
            stop=pisces.Stop(versions=20),
        )
        for process in clients:
            process.join()
    learnt = ", ".join(f"{name} {float(value):.2f}" for name, value in served.weights.items())
    print(f"{learnt} after {served.summary['versions']} versions")
    print("clients ended with", *(process.exitcode for process in clients))
