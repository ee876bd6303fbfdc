"""How a process becomes a good worker: deaf to what is meant for its parent, gone when that is."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

# Where there is no SIGHUP, nobody sends it.
FOR_PARENTS = [signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


def can_fork() -> bool:
    """May a forked process train? Yes on Linux, with one thread, unless autograd has threads here.

    Elsewhere system libraries mind. Autograd starts threads, which a fork would lack, at its first
    backward pass where there is a GPU, even if it is not used.
    """
    if sys.platform != "linux":
        return False
    return not any(name.startswith("pt_autograd") for name in _thread_names())


def _thread_names() -> Iterator[str]:
    for name in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # it ended meanwhile
            yield name.read_text()


@contextmanager
def born_deaf() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach, however early: they inherit what is blocked.

    Nor does it reach them that a terminal is closed. They are to `stay_deaf`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_PARENTS)
    try:
        with _put_off():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _put_off() -> Iterator[None]:
    """Handle Ctrl-C afterwards: where another thread takes it, what is blocked here is no help.

    Its handler would still be called here, perhaps in a hook of the fork, where all is swallowed.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if heard:
            handler(*heard[0])


def settle_worker() -> None:
    """Leave behind what was inherited: signals are the parent's to handle, streams are its own.

    A stream of the parent's may be locked for ever, by a thread that was not forked along; and what
    the parent has left to be collected may wait for such a thread when it goes.
    """
    gc.freeze()
    end_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    stay_deaf()
    with suppress(OSError):  # there may be none
        sys.stdout = os.fdopen(1, "w", 1, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, closefd=False)


def stay_deaf() -> None:
    """Ignore what a terminal sends to all processes: the parent says what is to be done."""
    for number in FOR_PARENTS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FOR_PARENTS)


def end_with_parent() -> None:
    """Let this process end when its parent does, however that ends."""
    threading.Thread(target=_wait_for_its_end, daemon=True).start()


def _wait_for_its_end() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
