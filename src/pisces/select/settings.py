"""What a selector's settings may be."""

from __future__ import annotations

from pisces.errors import ConfigError


def check_range(settings: object, low: float, high: float, *names: str) -> None:
    """Raise unless every setting called one of `names` lies between `low` and `high`."""
    for name in names:
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigError(
                f"{type(settings).__name__}: {name} must lie between {low:g} and {high:g}, "
                f"but is {value}; give it a value in that range"
            )
