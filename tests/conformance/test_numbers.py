"""The numbers of the table: through each protocol as composed by name, with its defaults.

They hold as well with clients under other names, and samples in other units: every rule is
normalised, every score a matter of a client's facts and not of its number.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conformance.scenes import (
    FIRST,
    INSTANTS,
    KNOWN,
    NEW,
    SECOND,
    C,
    Clients,
    about,
    chances,
    combined,
)
from conformance.table import ROWS, How, Settings
from pisces.names import PROTOCOLS

every_row = pytest.mark.parametrize("name", ROWS)
AS_THEY_ARE = (0, 1, 2, 3, 4, 5)

HOW = [(name, {}, row.how) for name, row in ROWS.items()]
HOW += [(name, settings, how) for name, row in ROWS.items() for settings, how in row.forms]
every_form = pytest.mark.parametrize(
    ("name", "settings", "how"),
    HOW,
    ids=[" ".join([name, *map(str, settings.values())]) for name, settings, _ in HOW],
)
worlds = pytest.mark.parametrize(
    ("names", "unit"), [((0, 1, 2, 3), 1), ((2, 0, 3, 1), 1), ((0, 1, 2, 3), 7)]
)


@every_form
@worlds
def test_how(name: str, settings: Settings, how: How, names: Sequence[int], unit: int) -> None:
    made = PROTOCOLS[name](C, **settings)
    done = [combined(made, scene, names=names, unit=unit) for scene in (FIRST, SECOND)]
    weights, coefficients = zip(how.first, how.second, strict=True)
    assert [d.weights.flat.tolist() for d in done] == [pytest.approx(w, abs=2e-6) for w in weights]
    assert [d.coefficients for d in done] == [pytest.approx(c) for c in coefficients]
    published = done[-1].published
    if how.published is None:
        assert published is None
    else:
        assert published is not None
        assert published.flat.tolist() == pytest.approx(how.published, abs=2e-6)


@every_row
@pytest.mark.parametrize(
    ("names", "unit"), [(AS_THEY_ARE, 1), ((3, 0, 5, 1, 2, 4), 1), (AS_THEY_ARE, 7)]
)
@pytest.mark.parametrize("scene", ["known", "new"])
def test_who(name: str, names: Sequence[int], unit: int, scene: str) -> None:
    who, draws = ROWS[name].who, 400
    clients: Clients = {"known": KNOWN, "new": NEW}[scene]
    seen = clients.view(names, unit)
    found = chances(lambda: PROTOCOLS[name](C), seen, draws)
    expected = {"known": who.known, "new": who.new}[scene]
    assert [found[client] for client in names] == [about(chance, draws) for chance in expected]


@every_row
@pytest.mark.parametrize("instant", INSTANTS)
def test_when(name: str, instant: str) -> None:
    pacer, seen = PROTOCOLS[name](C).pacer, INSTANTS[instant].view()
    when = dict(zip(INSTANTS, ROWS[name].when[1:], strict=True))
    assert (pacer.slots(seen), pacer.ready(seen), pacer.next_check(seen)) == when[instant]
