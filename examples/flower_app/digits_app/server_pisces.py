"""The server. Of server_fedavg.py and server_pisces.py, two lines differ."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from pisces.flower import Pisces

from digits_app.task import Net, evaluation

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    torch.manual_seed(1)
    strategy = Pisces(concurrency=4)
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": settings["learning-rate"]}),
        num_rounds=settings["num-server-rounds"],
        evaluate_fn=evaluation(settings["curve"]),
    )
