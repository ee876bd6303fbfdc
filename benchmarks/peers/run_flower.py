"""Flower: FedAvg on the shared task in its simulation engine, one Ray actor per worker.

The local training is ours to write here (`task.train`), as in Flower's own examples.
"""

from __future__ import annotations

import argparse
import os

import flwr
import task
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


def client_app(args: argparse.Namespace) -> ClientApp:
    """Trains one client's model and sends it back."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        data = task.load(args.data)
        client = int(context.node_config["partition-id"])
        model = task.lenet5()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        inputs, targets = data.client(client)
        task.train(model, inputs, targets, args.epochs, seed=client)
        answer = RecordDict(
            {
                "arrays": ArrayRecord(model.state_dict()),
                "metrics": MetricRecord({"num-examples": len(inputs)}),
            }
        )
        return Message(content=answer, reply_to=message)

    return app


def server_app(args: argparse.Namespace) -> ServerApp:
    """Runs the cohorts and reports."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, _context: Context) -> None:
        data, watch = task.load(args.data), task.Stopwatch()
        strategy = FedAvg(
            fraction_train=args.cohort_size / args.clients,
            min_train_nodes=args.cohort_size,
            min_available_nodes=args.clients,
            fraction_evaluate=0.0,
        )

        def after(cohort: int, _arrays: ArrayRecord) -> None:
            watch.lap() if cohort else watch.start()

        result = strategy.start(
            grid, ArrayRecord(task.initial(data).state_dict()), args.cohorts, evaluate_fn=after
        )
        model = task.lenet5()
        model.load_state_dict(result.arrays.to_torch_state_dict())
        accuracy = data.accuracy(model)
        task.report("flower", args, watch.cohorts_s, accuracy=accuracy, version=flwr.__version__)

    return app


def main() -> None:
    args = task.arguments()
    args.data = args.data.absolute()
    os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    run_simulation(
        server_app(args),
        client_app(args),
        num_supernodes=args.clients,
        backend_config={
            "init_args": {"num_cpus": args.workers, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


if __name__ == "__main__":
    main()
