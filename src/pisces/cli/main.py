"""`pisces`: the commands, and what their exit codes mean.

0    done
1    a bug in Pisces (with a traceback: please report it), or `pisces data check` found a fault,
     or some runs of `pisces reproduce` failed
2    bad input: a setting, a file or an option (one line says which)
3    the run could not go on: no client was left; or a server refuses this client
130  interrupted with Ctrl-C; what there was so far is saved and shown
143  told to end by SIGTERM, or by a terminal that is closed, in `pisces run`, `resume` and `serve`:
     saved and shown as well

Commands take half a second to import: whoever does not want to wait for them is let go at once.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from reprlib import repr as shortened
from typing import NoReturn

from pisces.cli.codes import INTERRUPTED
from pisces.cli.output import Output
from pisces.errors import PiscesError

NO_PATHS = (errno.ENAMETOOLONG, errno.ELOOP)  # whatever is asked of such a path


def main() -> None:
    """Run the command line; an error the user can mend is one line, not a traceback."""
    try:
        with _let_go_at_once():
            from pisces.cli.commands import app
        with redirect_stdout(Output(sys.stdout)) as output:
            code = app(prog_name="pisces", standalone_mode=False)
            output.flush()  # here, where an error is told
        sys.exit(code)
    except PiscesError as error:
        _refuse(str(error))
    except OSError as error:
        if error.errno not in NO_PATHS:
            raise
        _refuse(f"{shortened(error.filename)}: {error.strerror}: choose another path")
    except KeyboardInterrupt:  # before or after a run, which sees to itself
        sys.exit(INTERRUPTED)
    except Exception as error:
        from typer import Abort  # which is what it makes of Ctrl-C

        if isinstance(error, Abort):
            sys.exit(INTERRUPTED)
        if not hasattr(
            error, "format_message"
        ):  # the mark of a wrong option; Typer hides its class
            raise
        context = getattr(error, "ctx", None)
        command = "pisces" if context is None else context.command_path
        # Both Typer and what it is made of may say what was meant.
        message = re.sub(r"( Did you mean [^?]+\?)\1", r"\1", error.format_message())
        _refuse(f"{message.rstrip('.')}; see {command} --help")


@contextmanager
def _let_go_at_once() -> Iterator[None]:
    """Ctrl-C ends the process without a word: nothing is there to be saved.

    As an exception it could be swallowed by whatever is being imported.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _refuse(message: str) -> NoReturn:
    from pisces.cli.console import complain

    for line in message.splitlines():
        complain(line)
    sys.exit(2)


if __name__ == "__main__":
    main()
