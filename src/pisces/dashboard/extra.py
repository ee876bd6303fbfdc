"""The packages that only the page needs."""

from functools import partial

from pisces.extras import installed

needed = partial(installed, "pisces watch", "watch")
