"""By which signals a process is told to end, beside Ctrl-C."""

from __future__ import annotations

import signal


def ends() -> list[signal.Signals]:
    """SIGTERM, and SIGHUP unless it is ignored: `nohup` lets a run outlive its terminal."""
    has_hangup = hasattr(signal, "SIGHUP")  # not everywhere
    if has_hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        return [signal.SIGTERM, signal.SIGHUP]
    return [signal.SIGTERM]
