"""APPFL: FedAvg on the shared task in its virtual-time simulator (`appfl.vsim`).

The simulator trains one client after the other in one process, so `--workers` must be 1. Its
memory savers (a garbage collection at every turn, on by default) are off: they only cost time here.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import task
from appfl.agent import ClientAgent, ServerAgent
from appfl.config import ServerAgentConfig
from appfl.vsim import ClientProfile, SyncSimDriver, VsimLogger
from numpy.typing import NDArray
from omegaconf import OmegaConf
from torch.utils.data import TensorDataset

HERE = str(Path(__file__).absolute())


def client_data(path: str, client: int) -> tuple[TensorDataset, None]:
    """Found by name in this file, as APPFL wants it."""
    return TensorDataset(*task.load(Path(path)).client(client)), None


def model(path: str) -> task.nn.Module:
    """Also found by name."""
    return task.initial(task.load(Path(path)))


def accuracy(targets: NDArray[np.int64], outputs: NDArray[np.float32]) -> float:
    """Also found by name; APPFL computes it after every local epoch."""
    return float((outputs.argmax(axis=1) == targets).mean())


def train_configs(epochs: int) -> dict[str, object]:
    return {
        "trainer": "VanillaTrainer",
        "mode": "epoch",
        "num_local_epochs": epochs,
        "optim": "SGD",
        "optim_args": {"lr": task.LEARNING_RATE, "momentum": task.MOMENTUM},
        "loss_fn": "CrossEntropyLoss",
        "metric_path": HERE,
        "metric_name": "accuracy",
        "train_batch_size": task.BATCH_SIZE,
        "logging_output_filename": "",
        "optimize_memory": False,
    }


def server(path: str, num_clients: int, cohorts: int) -> ServerAgent:
    model_configs = {"model_path": HERE, "model_name": "model", "model_kwargs": {"path": path}}
    off = {"optimize_memory": False}
    return ServerAgent(
        ServerAgentConfig(
            client_configs=OmegaConf.create({"model_configs": model_configs}),
            server_configs=OmegaConf.create(
                {
                    "num_clients": num_clients,
                    "num_global_epochs": cohorts,
                    "scheduler": "SyncScheduler",
                    "scheduler_kwargs": {"num_clients": num_clients, **off},
                    "aggregator": "FedAvgAggregator",
                    "aggregator_kwargs": {"client_weights_mode": "equal", **off},
                    **off,
                }
            ),
        )
    )


def client(path: str, number: int, epochs: int) -> ClientAgent:
    data = {
        "dataset_path": HERE,
        "dataset_name": "client_data",
        "dataset_kwargs": {"path": path, "client": number},
    }
    settings = {
        "client_id": f"client{number}",
        "train_configs": train_configs(epochs),
        "model_configs": {
            "model_path": HERE,
            "model_name": "model",
            "model_kwargs": {"path": path},
        },
        "data_configs": data,
        "optimize_memory": False,
    }
    return ClientAgent(OmegaConf.create(settings))


class Driver(SyncSimDriver):
    """APPFL's driver, with a look at the clock after every round."""

    watch: task.Stopwatch

    def _run_round(self) -> bool:
        self.watch.start()
        done: bool = super()._run_round()
        self.watch.lap()
        return done


def main() -> None:
    args = task.arguments()
    if args.workers != 1 or args.epochs < 1:
        sys.exit("appfl.vsim trains in one process, and cannot do without training")
    logging.disable(logging.INFO)
    path, data = str(args.data), task.load(args.data)
    agents = [client(path, number, args.epochs) for number in range(args.clients)]
    driver = Driver(
        server(path, args.clients, args.cohorts),
        agents,
        {agent.get_id(): ClientProfile() for agent in agents},
        participants_per_round=args.cohort_size,
        logger=VsimLogger(),
        target_rounds=args.cohorts,
    )
    driver.watch = task.Stopwatch()
    driver.run()
    learned = task.lenet5()
    learned.load_state_dict(driver.server.get_parameters(serial_run=True))
    found = data.accuracy(learned)
    task.report("appfl", args, driver.watch.cohorts_s, accuracy=found, version=version("appfl"))


if __name__ == "__main__":
    main()
