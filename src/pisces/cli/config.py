"""`pisces config`: a full config file to start from."""

from __future__ import annotations


def config() -> None:
    """Print a commented config file with every setting at its default.

    [bold]Example[/]

      pisces config > my.toml && pisces run my.toml
    """
    from pisces.cli.example import example

    print(example(), end="")
