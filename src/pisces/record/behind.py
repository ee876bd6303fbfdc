"""How lines come into a file: at once, or behind the loop's back through a queue with an end.

At once is right in virtual time, where nobody is kept waiting: it is quicker by a little, and what
was recorded survives a kill. Where time passes by itself the loop must not wait for a slow disk:
a thread writes there. It never drops a line. When the queue is full the loop waits after all, and
what the disk refuses, the loop is told at its next line.
"""

from __future__ import annotations

import threading
from typing import BinaryIO, Protocol

MAX_BYTES = 8 << 20  # some 80 000 lines


class Log(Protocol):
    """Takes text for a file; whatever the system refuses is an `OSError`, here or at the next."""

    def write(self, text: bytes) -> None:
        """Take some text."""
        ...

    def flush(self) -> None:
        """Come back when all that was taken is with the system."""
        ...

    def close(self) -> None:
        """Do so, then close the file."""
        ...


class AtOnce:
    """Hands every text to the system before it comes back, so that a killed process keeps it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: bytes) -> None:
        """Write it."""
        self._file.write(text)
        self._file.flush()

    def flush(self) -> None:
        """Nothing is held back, but for what was refused."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Behind:
    """Lets a thread write; up to `max_bytes` may wait for it, or one text that is larger.

    The thread is started by the first text, and so after whatever is forked before.
    """

    def __init__(self, file: BinaryIO, max_bytes: int = MAX_BYTES) -> None:
        self._file, self._max_bytes = file, max_bytes
        self._turn = threading.Condition()  # guards all below
        self._texts: list[bytes] = []
        self._num_bytes = 0  # handed over, and not with the system yet
        self._is_closed = False
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    def write(self, text: bytes) -> None:
        """Hand it over; waits while there is no room."""
        with self._turn:
            self._turn.wait_for(lambda: self._has_room(len(text)))
            self._raise()
            self._texts.append(text)
            self._num_bytes += len(text)
            self._begin()
            if len(self._texts) == 1:  # else it was told already
                self._turn.notify_all()

    def flush(self) -> None:
        """Wait until everything is with the system."""
        with self._turn:
            self._turn.wait_for(lambda: self._error or not self._num_bytes)
            self._raise()
            self._file.flush()

    def close(self) -> None:
        """Wait for the rest, end the thread and close the file."""
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._file.close()
        self._raise()

    def _has_room(self, num_bytes: int) -> bool:
        if self._error or not self._num_bytes:
            return True
        return self._num_bytes + num_bytes <= self._max_bytes

    def _raise(self) -> None:
        if self._error is not None:
            raise OSError(*self._error.args)  # a new one: each carries its own traceback

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="pisces log", daemon=True)
            self._thread.start()

    # --- the thread's side ------------------------------------------------------------------------

    def _work(self) -> None:
        while (text := self._next()) and self._put(text):
            pass

    def _next(self) -> bytes:
        """All that waits; nothing once there is no more to come."""
        with self._turn:
            self._turn.wait_for(lambda: self._texts or self._is_closed)
            texts, self._texts = self._texts, []
        return b"".join(texts)

    def _put(self, text: bytes) -> bool:
        error = None
        try:
            self._file.write(text)
            self._file.flush()
        except Exception as refused:  # whatever it is: nobody else would hear of it
            error = OSError(*refused.args)
        with self._turn:
            self._num_bytes -= len(text)
            self._error = error
            self._turn.notify_all()
        return error is None
