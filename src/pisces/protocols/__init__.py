"""Named protocols, each one composition of who, when, how (and whom to trust).

The keyword parameters are the protocol's settings; in a config file they stand in the table
`[protocols.NAME]`. `concurrency` (C) is how many clients may run at once.

Every function in these files that returns `Policies` is a protocol, found here by its own name:
`protocols.fedbuff(20)`, whichever file it is in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from pisces.policy import Policies

if TYPE_CHECKING:
    from pisces.protocols.pisces import pisces as pisces  # not the file of that name

    def __getattr__(name: str) -> Callable[..., Policies]: ...  # what is found below


def _found() -> Iterator[tuple[str, Callable[..., Policies]]]:
    for file in iter_modules(__path__, f"{__name__}."):
        for name, thing in vars(import_module(file.name)).items():
            is_here = inspect.isfunction(thing) and thing.__module__ == file.name
            if is_here and thing.__annotations__.get("return") == Policies.__name__:
                yield name, thing


globals().update(dict(_found()))
