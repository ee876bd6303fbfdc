"""What a replay cannot know, in words."""

from __future__ import annotations
from typing import Any

DIFFERS = {
    "aggregated": "a version",
    "dropped": "an update refused",
    "called off": "a task called off",
    "started": "how many to start",
}

def caveats(*a: Any) -> tuple[str, ...]:
    return ()

def why(*a: Any) -> tuple[str, ...]:
    return ()
