"""`pisces protocols`: what each is made of, and what it can be told."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pisces.cli.console import Json, print_json, stdout
from pisces.explain import known

if TYPE_CHECKING:
    from pisces.policy import Policies

C = 20  # the concurrency of the protocols looked at


def protocols(
    name: Annotated[str | None, typer.Argument(help="Explain this one.")] = None,
    parts: Annotated[
        bool, typer.Option("--parts", help="Single policies instead, for mixing by hand.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the protocols: who trains, when to aggregate, how updates combine.

    [bold]Examples[/]

      pisces protocols

      pisces protocols fedbuff

      pisces protocols --parts
    """
    from pisces.names import PROTOCOLS  # torch is slow to import

    if parts:
        _tell_parts(name, as_json)
        return
    chosen = PROTOCOLS if name is None else [known(name, PROTOCOLS, "NAME")]
    if as_json:
        print_json([_facts(each) for each in chosen])
    elif name is None:
        stdout.print(_listing([_facts(each) for each in chosen]))
        stdout.print("\nOne of them, with its settings: pisces protocols NAME", highlight=False)
        stdout.print("What they are made of, to mix: pisces protocols --parts", highlight=False)
    else:
        _explain(_facts(name))


def _facts(name: str) -> dict[str, Any]:
    from pisces.names import PROTOCOLS

    policies = PROTOCOLS[name](C)
    return {
        "name": name,
        "about": inspect.getdoc(PROTOCOLS[name]) or "",
        **dict(_answers(policies)),
        "settings": _settings(PROTOCOLS[name], name),
    }


def _settings(maker: Callable[..., Any], name: str) -> dict[str, Any]:
    from pisces.settings import schema_of

    return {
        key: ({} if field.is_required() else {"default": field.default})
        | {"about": field.description or ""}
        for key, field in schema_of(maker, name).model_fields.items()
    }


def _tell_parts(name: str | None, as_json: bool) -> None:
    from pisces.names import PARTS

    every = [_part(table, each) for table, makers in PARTS.items() for each in makers]
    if name is not None:
        known(name, sorted({facts["name"] for facts in every}), "NAME")
    chosen = [facts for facts in every if name in (None, facts["name"])]
    if as_json:
        print_json(chosen)
        return
    for table in dict.fromkeys(facts["table"] for facts in chosen):
        of_table = [facts for facts in chosen if facts["table"] == table]
        stdout.print(f"[bold]{escape(f'[{table}]')}[/]", highlight=False)
        stdout.print(_listing(of_table))
        if name is not None and of_table[0]["settings"]:
            stdout.print(_table([_setting(*item) for item in of_table[0]["settings"].items()]))
            stdout.print()
    if name is None:
        stdout.print("One of them, with its settings: pisces protocols --parts NAME")


def _part(table: str, name: str) -> dict[str, Any]:
    from pisces.names import PARTS

    maker = PARTS[table][name]
    about = inspect.getdoc(maker) or ""
    settings = _settings(maker, name)
    return {"table": table, "name": name, "about": about, "settings": settings}


def _answers(policies: Policies) -> Iterator[tuple[str, str]]:
    """What each of its policies says of itself."""
    yield "who", _says(policies.selector)
    yield "when", _says(policies.pacer)
    yield "how", " ".join(_says(part) for part in _layers(policies.aggregator))
    yield "trusts", "everybody" if policies.judge is None else _says(policies.judge)


def _layers(aggregator: Any) -> Iterator[Any]:
    """An aggregator and those it is wrapped around."""
    while aggregator is not None:
        yield aggregator
        aggregator = getattr(aggregator, "inner", None)


def _says(policy: object) -> str:
    """In the words of its rule, if it has one, or else of its file."""
    rule = getattr(policy, "rule", None)
    source = sys.modules[type(policy).__module__] if rule is None else type(rule)
    return (inspect.getdoc(source) or "").splitlines()[0]


def _listing(all_facts: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is")
    for facts in all_facts:
        table.add_row(facts["name"], escape(facts["about"].splitlines()[0]))
    return table


def _explain(facts: dict[str, Any]) -> None:
    stdout.print(f"[bold]{facts['name']}[/]: {escape(facts['about'])}\n", highlight=False)
    stdout.print(_table([(q, escape(facts[q])) for q in ("who", "when", "how", "trusts")]))
    if facts["settings"]:
        table = escape(f"[protocols.{facts['name']}]")
        stdout.print(f"\n[bold]{table}[/]", highlight=False)
        stdout.print(_table([_setting(*item) for item in facts["settings"].items()]))


def _setting(key: str, facts: dict[str, Any]) -> tuple[str, str, str]:
    default = facts.get("default", "needed")
    return key, "none" if default is None else str(default), escape(facts["about"])


def _table(rows: Sequence[Sequence[str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0][:-1]:
        table.add_column(no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table
