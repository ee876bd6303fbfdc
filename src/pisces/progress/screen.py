"""The terminal that progress is shown on: one for all who write there, or views are torn."""

from __future__ import annotations

from rich.console import Console

stderr = Console(stderr=True)
