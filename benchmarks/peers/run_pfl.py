"""pfl (pfl-research): FedAvg on the shared task, one process per worker under torchrun.

    torchrun --nproc-per-node 2 run_pfl.py --data task.npz

pfl does not shuffle a user's samples between epochs; the others do.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pfl
import task
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn


class Net(nn.Sequential):
    """A module with the two methods pfl asks for."""

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.train()
        return nn.functional.cross_entropy(self(inputs), targets)

    @torch.no_grad()
    def metrics(self, inputs: torch.Tensor, targets: torch.Tensor) -> dict[str, Any]:
        self.eval()
        right = (self(inputs).argmax(1) == targets).sum().item()
        return {"accuracy": Weighted(right, len(targets))}


class Laps(TrainingProcessCallback):
    """Notes when each central iteration is over."""

    def __init__(self, watch: task.Stopwatch) -> None:
        self._watch = watch

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self._watch.start()
        return Metrics()

    def after_central_iteration(self, *args: Any, **kwargs: Any) -> tuple[bool, Metrics]:
        self._watch.lap()
        return False, Metrics()


def federated(data: task.Data, num_clients: int) -> FederatedDataset:
    """The clients; each dataset is made once, which spares pfl the slicing later."""
    own = [PyTorchTensorDataset(data.client(c)) for c in range(len(data.rows))]
    sampler = get_user_sampler("minimize_reuse", list(range(num_clients)))
    return FederatedDataset(lambda client: own[client % len(own)], sampler)


def main() -> None:
    args = task.arguments()
    data = task.load(args.data)
    net = Net(*task.initial(data))
    model = PyTorchModel(
        net,
        partial(torch.optim.SGD, momentum=task.MOMENTUM),
        torch.optim.SGD(net.parameters(), lr=1.0),
    )
    clients, watch = federated(data, args.clients), task.Stopwatch()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=args.cohorts,
            evaluation_frequency=args.cohorts + 1,
            train_cohort_size=args.cohort_size,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=clients, val_data=clients),
        model,
        NNTrainHyperParams(
            local_num_epochs=args.epochs,
            local_learning_rate=task.LEARNING_RATE,
            local_batch_size=task.BATCH_SIZE,
        ),
        callbacks=[Laps(watch)],
        send_metrics_to_platform=False,
    )
    if pytorch_ops.distributed.global_rank == 0:
        accuracy = data.accuracy(net)
        task.report("pfl", args, watch.cohorts_s, accuracy=accuracy, version=pfl.__version__)
    if torch.distributed.is_initialized():  # a rank that just leaves may abort, and end the others
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
