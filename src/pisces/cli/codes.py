"""How commands end, where several say the same; see `main`, which must not wait for an import."""

from __future__ import annotations

INTERRUPTED = 130
TERMINATED = 143
