"""A Ray cluster: all that is imported of Ray."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pisces.cluster.base import Answer, Cluster, Died, Evicted, Heard, Ref, Refused, Share, Worker
from pisces.errors import ConfigError, MissingPackageError, RunError

try:
    import ray
    from ray import exceptions
except ImportError as error:
    raise MissingPackageError(
        f"a cluster needs a package that is not here ({error}): pip install 'pisces-fl[ray]'"
    ) from error

CLIENT = "ray://"
_KNOCK_S = 5.0


class RayCluster(Cluster):
    """A connection to Ray, which places our workers; one that was there already is left open.

    `address` is "auto" (a cluster that this machine is part of), "local" (one that is started on
    this machine, with `num_cpus`, and ends with the connection), HOST:PORT or ray://HOST:PORT.
    """

    def __init__(self, address: str = "auto", *, num_cpus: int | None = None) -> None:
        self._is_ours = not ray.is_initialized()
        self._hired: list[_Actor] = []
        if not self._is_ours and address != "auto":
            raise ConfigError(
                f"Ray is connected already in this process: say auto, not {address!r}, or "
                "disconnect first (ray.shutdown())"
            )
        if self._is_ours:
            _connect(address, num_cpus)
            _print_nothing(True)
        self._kind = ray.remote(_Holder)

    def nodes(self) -> Mapping[str, str]:
        """The nodes that are alive."""
        return {node["NodeID"]: node["NodeName"] for node in ray.nodes() if node["Alive"]}

    def room(self, share: Share) -> int:
        """How many such workers fit, node by node."""
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(_fitting(has.get("CPU", 0.0), has.get("GPU", 0.0), share) for has in alive)

    def put(self, thing: Any) -> Ref:
        """Into the object store."""
        with _full_store():
            try:
                return ray.put(thing)
            except (TypeError, AttributeError, pickle.PicklingError) as error:
                raise ConfigError(
                    f"what is to be trained cannot be sent to a cluster ({_first_line(error)}): "
                    "build models and losses of what can be pickled"
                ) from error

    def hire(self, kind: type, share: Share) -> Worker:
        """An actor; it ends when this process does, and Ray does not start it again."""
        actor = self._kind.options(
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        self._hired = [one for one in self._hired if not one.is_over]
        self._hired.append(_Actor(actor.remote(kind)))
        return self._hired[-1]

    def answers(self, refs: Sequence[Ref], wait_s: float) -> list[tuple[Ref, Heard]]:
        """All that have come, once one has."""
        refs = list(refs)
        if not refs:  # for nothing Ray does not wait
            threading.Event().wait(wait_s)
            return []
        ready, rest = ray.wait(refs, num_returns=1, timeout=wait_s)
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return [(ref, _answer(ref)) for ref in ready]

    def close(self) -> None:
        """Disconnect; a local cluster ends, and in any case whoever works for us."""
        for actor in self._hired:
            if not actor.is_over:
                actor.end()
        self._hired = []
        if self._is_ours and ray.is_initialized():
            with _signals_kept():
                ray.shutdown()
            _print_nothing(False)


class _Actor(Worker):
    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.is_over = False

    def ask(self, method: str, *arguments: Any) -> Ref:
        return self._handle.do.remote(method, *arguments)

    def end(self) -> None:
        self.is_over = True
        with suppress(exceptions.RayError, ValueError, RuntimeError):  # it is dead, or all of Ray
            ray.kill(self._handle, no_restart=True)


class _Holder:
    """In the actor: an object of ours, and where it is."""

    def __init__(self, kind: type) -> None:
        self._held = kind()
        self._node = ray.get_runtime_context().get_node_id()

    def do(self, method: str, *arguments: Any) -> Answer:
        return Answer(getattr(self._held, method)(*arguments), self._node)


def _answer(ref: Ref) -> Heard:
    """Whatever comes of a question is an answer."""
    try:
        answer: Answer = ray.get(ref)
        return answer
    except exceptions.ObjectLostError as error:
        return Evicted(_first_line(error))
    except exceptions.RayTaskError as error:  # where it was to be answered, something was raised
        if isinstance(error.cause, exceptions.ObjectLostError):
            return Evicted(_first_line(error.cause))
        return Refused(_last_line(error))
    except exceptions.RayError as error:  # its process or its node ended
        return Died(_first_line(error))
    except Exception as error:  # what it answered cannot be read here
        return Refused(f"{type(error).__name__}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]


def _fitting(cpus: float, gpus: float, share: Share) -> int:
    """How many shares such a node has."""
    wanted = [(cpus, share.cpus), (gpus, share.gpus)]
    return min(int(has / part + 1e-9) for has, part in wanted if part)


@contextmanager
def _full_store() -> Iterator[None]:
    try:
        yield
    except exceptions.ObjectStoreFullError as error:
        raise RunError(
            "the object store of this node is full: start its Ray with a larger "
            f"--object-store-memory ({_first_line(error)})"
        ) from error


# --- connecting -----------------------------------------------------------------------------------


def _connect(address: str, num_cpus: int | None) -> None:
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        quietly |= {"num_cpus": num_cpus, "include_dashboard": False}
    elif address != "auto":
        _knock(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a cluster of ours reports to nobody
    with _signals_kept():
        try:
            ray.init(address, **quietly)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            if address == "auto" and isinstance(error, ConnectionError):
                raise _unreachable(address, "none runs") from error
            raise ConfigError(
                f"Ray cannot connect to {address!r} ({_first_line(error)}): is it a Ray of another "
                "version, or does it want a token (RAY_AUTH_MODE=token)?"
            ) from error


def _knock(address: str) -> None:
    """Ray waits long for a host that does not answer, and then ends the process."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not (host and "/" not in host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ConfigError(
            "the address of a Ray cluster must be auto, local, HOST:PORT or ray://HOST:PORT, not "
            f"{address!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _KNOCK_S).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error


def _unreachable(address: str, why: str) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at {address!r} ({why}): start one with `ray start --head`; its address is "
        "auto on its own machines, ray://HOST:10001 elsewhere, and local starts one here"
    )


def _print_nothing(nothing: bool) -> None:
    """Ray tells of deaths on standard output, which is a command's own; its debugger does this."""
    ray._private.worker._worker_logs_enabled = not nothing


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself; what ends a run is for the run to hear."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
