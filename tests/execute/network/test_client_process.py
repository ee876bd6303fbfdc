"""Clients as processes: what they weigh, and how they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from scripted import Talk, serving

from pisces.execute.network.messages import Bye, Result

HEAVY = ("torch", "matplotlib", "pydantic", "sklearn", "rich", "typer", "tomlkit", "safetensors")
CLIENT = """
import sys, time
from pisces import client

def train(weights, work):
    if work.task == 9:
        print("training", flush=True)
        while True:
            time.sleep(0.01)
    return client.Update({name: array + 1 for name, array in weights.items()}, losses=[1.0])

outcome = client.join(sys.argv[1], train, num_examples=5, insecure=True, name="a", keep=sys.argv[2])
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def started(address: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, address, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_client_without_torch_is_light(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome()
        for task in range(3):
            await talk.order(task, version=task)
            await talk.result()
            await talk.acknowledge(task)
        await talk.over()

    with serving(script) as server:
        out, err = started(server.address, tmp_path).communicate(timeout=30)
    most_kb, modules = out.splitlines()
    assert not set(HEAVY) & set(modules.split()), err
    assert int(most_kb) * 1024 < 100e6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_waits_for_what_was_sent(tmp_path: Path, number: int) -> None:
    heard = []
    signalled = threading.Event()

    async def script(talk: Talk) -> None:
        await talk.welcome(beat_s=0.2)
        await talk.order(1)
        await talk.result()
        await talk.order(9)
        while not signalled.is_set():
            await talk.hear(beats=True)
        await talk.acknowledge(1)  # late, but in time
        heard.append(await talk.hear())

    with serving(script) as server:
        process = started(server.address, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(number)
        signalled.set()
        _, err = process.communicate(timeout=30)
    assert heard == [Bye()]
    assert "KeyboardInterrupt" in err or "Terminated" in err
    assert process.returncode != 0
    assert list(tmp_path.glob("*.held")) == []


def test_the_second_signal_ends_at_once_and_results_stay(tmp_path: Path) -> None:
    async def script(talk: Talk) -> None:
        await talk.welcome()
        await talk.order(1)
        assert isinstance((await talk.result())[0], Result)
        await talk.order(9)
        await talk.silence()

    with serving(script) as server:
        process = started(server.address, tmp_path)
        assert process.stdout is not None
        assert process.stdout.readline() == "training\n"
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):  # nobody says that it has the result
            process.wait(1.0)
        process.send_signal(signal.SIGINT)
        process.wait(2.0)
        process.communicate()
    assert len(list(tmp_path.glob("*.held"))) == 1
