"""What each protocol looks like in every picture, whoever draws it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, cycle, islice
from typing import TypeAlias

Dash: TypeAlias = str | tuple[int, tuple[int, ...]]

# Okabe and Ito's colours, told apart also by the colour-blind; yellow is left out on white paper.
# Those of the second line are for the rare study of more than seven.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"),
    *("#882255", "#999933", "#332288", "#888888", "#8C510A"),
)
BLUE, ORANGE, GREEN, PINK, SKY, AMBER, BLACK = COLOURS[:7]
GREY = COLOURS[10]
# Whose the first colours are, in every picture; those of the main ones are given away last.
MAIN = ("pisces", "oort", "fedbuff", "fedavg")
OWNERS = (*MAIN, "pisces-paper", "fedbuff-mixing", "pisces-artifact")
# Viridis from its bright end: what is fresh is bright. On a dark page it is the other way round.
SCALE = ("#FDE725", "#5EC962", "#21918C", "#3B528B", "#440154")
# Black and white printers and the fully colour-blind go by these.
DASHES: tuple[Dash, ...] = ("-", "--", "-.", ":", (0, (3, 1, 1, 1, 1, 1)))


@dataclass(frozen=True, slots=True)
class Style:
    """How one of several things is drawn on every sheet."""

    colour: str
    dash: Dash


def styles() -> Iterator[Style]:
    """One after the other, for ever."""
    for colour, dash in zip(cycle(COLOURS), cycle(DASHES), strict=False):
        yield Style(colour, dash)


def styles_of(names: Collection[str]) -> dict[str, Style]:
    """A style each: protocols that own one have it in every picture, others what is left."""
    first = list(islice(styles(), len(COLOURS)))
    owned = dict(zip(OWNERS, first, strict=False))
    taken = {owned[name] for name in names if name in owned}
    in_order = chain(first[len(MAIN) :], first[: len(MAIN)], islice(styles(), len(COLOURS), None))
    left = (style for style in in_order if style not in taken)
    return {name: owned[name] if name in owned else next(left) for name in names}
