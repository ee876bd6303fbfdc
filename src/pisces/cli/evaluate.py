"""`pisces evaluate`: a finished run's model on its test set, and client by client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from pisces import config
from pisces.cli.console import Json, print_json, stdout
from pisces.errors import RunError
from pisces.record.reader import Run
from pisces.record.writer import MODEL
from pisces.stop import lower_is_better

if TYPE_CHECKING:
    from torch import nn

    from pisces.data.federated import FederatedData


def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run's folder.")],
    data: Annotated[
        str | None, typer.Option(help="Another dataset of the same shape; default: the run's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Test a run's final model, also on every client's own data.

    A client's own data is what it trained on, so its accuracy there (of
    text: its perplexity) says how fairly the model serves the clients, not
    how well it generalises; the test set says that.

    [bold]Examples[/]

      pisces evaluate runs/demo/pisces-seed1

      pisces evaluate runs/mnist-run --data fashion_mnist --json
    """
    import torch

    from pisces import world

    run = Run.open(folder)
    settings = _settings(run, data)
    torch.set_num_threads(settings.train.threads)
    federated = world.federated_data(settings)
    model = world.initial_model(settings, federated)
    found = _measure(model, federated, whose=0 if run.is_served else federated.num_clients)
    if as_json:
        print_json({"folder": str(folder), "dataset": settings.data.dataset, **found})
    else:
        stdout.print(_table(run, settings, found))


def _settings(run: Run, dataset: str | None) -> config.Config:
    if run.is_of_a_program or not run.config:
        raise RunError(
            f"{run.path} was made from Python, with a model of its own: load it there with "
            "pisces.load(...).state_dict()"
        )
    if not (run.path / MODEL).exists():
        raise RunError(f"{run.path} has no {MODEL}, which a run writes at its end: finish it")
    settings = config.check(run.config, str(run.path / "config.toml"))
    weights = str(run.path / MODEL)
    updates: dict[str, Any] = {"model": settings.model.model_copy(update={"weights": weights})}
    if dataset is not None:
        updates["data"] = settings.data.model_copy(update={"dataset": dataset})
    return settings.model_copy(update=updates)


def _measure(model: nn.Module, data: FederatedData, whose: int) -> dict[str, Any]:
    """On the test set, and on the data of so many clients; those of a network keep theirs."""
    from pisces.models.flat import flatten
    from pisces.objective import goal_of

    goal, weights = goal_of(data.objective), flatten(model)
    test = goal.test_set(model, data.test_inputs, data.test_targets)(weights)
    clients = [
        goal.test_set(model, *data.client(client))(weights)[goal.headline]
        for client in range(whose)
    ]
    if not clients:
        return {"test": test, "metric": goal.headline, "clients": None}
    spread = _spread(np.array(clients), lower_is_better(goal.headline))
    return {"test": test, "metric": goal.headline, "clients": spread}


def _spread(values: NDArray[np.float64], less_is_more: bool = False) -> dict[str, float]:
    worst_first = np.sort(values)[:: -1 if less_is_more else 1]
    worst = worst_first[: max(1, len(values) // 10)]
    return {
        "mean": float(worst_first.mean()),
        "sd": float(worst_first.std()),
        "max" if less_is_more else "min": float(worst_first[0]),
        "worst_decile": float(worst.mean()),
        "median": float(np.median(worst_first)),
    }


def _table(run: Run, settings: config.Config, found: dict[str, Any]) -> Table:
    title = f"{run.name} on {settings.data.dataset}"
    table = Table(box=box.SIMPLE, show_header=False, title=title, title_justify="left")
    table.add_column(style="dim")
    table.add_column(justify="right")
    test = found["test"]
    for name, value in test.items():
        table.add_row(f"test {name}", f"{value:.4f}")
    if found["clients"] is None:
        table.add_row("clients' own data", "is theirs")
        return table
    labels = {
        "mean": f"{found['metric']} on a client's own data, mean",
        "sd": "standard deviation over clients",
        "median": "median client",
        "worst_decile": "worst tenth of clients, mean",
        "max" if "max" in found["clients"] else "min": "worst client",
    }
    for key, label in labels.items():
        table.add_row(label, f"{found['clients'][key]:.4f}")
    return table
