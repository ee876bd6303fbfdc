"""The smallest Flower app: a model of a few numbers, and nodes that do what a file says.

A node's file has one line: `train` (the default), `sleep SECONDS`, `raise`, `die`, `nan`,
`shape` or `jump`. Each task is noted in the node's diary. A node moves every number by its
`step_of`.
"""

START = 1.0  # of each of the three


def step_of(number: int) -> float:
    """What a node moves every number by; as the app itself has it."""
    return (number + 1) / 1000


PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "tiny"
version = "1.0.0"
description = "Three numbers"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "pisces"

[tool.flwr.app.components]
serverapp = "tiny.server:app"
clientapp = "tiny.client:app"

[tool.flwr.app.config]
protocol = "pisces"
buffer-size = 0
versions = 1000
concurrency = 4
nodes = 2
size = 3
timeout = 60.0
target = 0.0
checkpoint = 0.5
out = ""
deeds = ""
"""

CLIENT = '''\
"""Knows nothing of Pisces, and needs numpy alone."""

import json
import os
import signal
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    number = context.node_config["partition-id"]
    folder = Path(context.run_config["deeds"])
    deed = folder / str(number)
    word, *rest = (deed.read_text() if deed.exists() else "train").split()
    asked = dict(message.content["config"])
    note = {"at": time.time(), "does": word, "round": asked["server-round"]}
    with (folder / f"{number}.diary").open("a") as file:
        file.write(json.dumps(note) + "\\n")
    arrays = message.content["arrays"].to_numpy_ndarrays()
    made = [array + np.float32((number + 1) / 1000) for array in arrays]
    if word == "sleep":
        time.sleep(float(rest[0]))
    if word == "raise":
        raise RuntimeError("this node's data is gone")
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "jump":
        made = [array + np.float32(2) for array in arrays]
    if word == "nan":
        made = [array * np.float32("nan") for array in made]
    if word == "shape":
        made = [array[:-1] for array in made]
    metrics = MetricRecord({"num-examples": 10 * (number + 1), "train_loss": 1.0})
    content = RecordDict({"arrays": ArrayRecord(made), "metrics": metrics})
    return Message(content, reply_to=message)
'''

SERVER = '''\
"""As a Flower user writes it, but for what tests want to turn."""

import numpy as np
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp import ServerApp

from pisces.flower import Strategy
from pisces.record.checkpoint import Checkpoints
from pisces.stop import Stop

app = ServerApp()


def evaluate(_version, arrays):
    return MetricRecord({"moved": float(arrays.to_numpy_ndarrays()[0].mean()) - 1})


@app.main()
def main(grid, context):
    told = context.run_config
    strategy = Strategy(
        told["concurrency"],
        protocol=told["protocol"],
        settings={"buffer_size": size} if (size := told["buffer-size"]) else {},
        stop=Stop(target=told["target"], metric="moved") if told["target"] else Stop(),
        min_available_nodes=told["nodes"],
        checkpoints=Checkpoints(told["checkpoint"]),
        out=told["out"],
    )
    result = strategy.start(
        grid,
        ArrayRecord([np.ones(told["size"], np.float32)]),
        num_rounds=told["versions"],
        timeout=told["timeout"],
        evaluate_fn=evaluate,
    )
    print("moved", result.arrays.to_numpy_ndarrays()[0].tolist())
'''

APP = {
    "pyproject.toml": PROJECT,
    "tiny/__init__.py": "",
    "tiny/client.py": CLIENT,
    "tiny/server.py": SERVER,
}
