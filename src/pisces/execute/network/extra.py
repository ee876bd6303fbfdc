"""The packages that only the network needs."""

from functools import partial

from pisces.extras import installed

needed = partial(installed, "the network", "network")
