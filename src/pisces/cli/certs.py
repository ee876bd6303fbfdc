"""`pisces certs`: who may serve, who may join, and who may no longer."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from pisces.cli.console import Json, print_json, stdout

if TYPE_CHECKING:
    from pisces.execute.network.trust.certs import Issued

app = typer.Typer(name="certs", help="Make, list and revoke certificates.", rich_markup_mode="rich")
SOON = 30  # days
MOST_DAYS = 36_500
Folder = Annotated[Path, typer.Option(help="Folder of the certificates.")]
Days = Annotated[int, typer.Option(min=1, max=MOST_DAYS, help="How long it is good for.")]
Renew = Annotated[bool, typer.Option("--renew", help="Replace the one there is, and revoke it.")]
CERTS = Path("certs")


@app.callback(invoke_without_command=True)
def _certs(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command("init")
def init(
    folder: Folder = CERTS,
    days: Days = 3650,
    name: Annotated[str, typer.Option(help="What the authority is called.")] = "Pisces authority",
) -> None:
    """Make an authority, which signs the certificates of a federation.

    Keep ca.key to yourself: whoever has it can join, and serve.

    [bold]Example[/]

      pisces certs init
    """
    from pisces.execute.network.trust.certs import CERTIFICATE, KEY, create

    made = create(folder, name, days)
    ends_at = made.certificate.not_valid_after_utc
    _say(f"{folder / CERTIFICATE}: an authority, until {ends_at:%Y-%m-%d}")
    _say(f"{folder / KEY}: its private key; keep it to yourself, and a copy in a safe place")
    _say(f"next: pisces certs server{_told(folder)}")


@app.command("server")
def server(
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="DNS name or address that clients know it by; may be given several times. "
            "Default: localhost and this machine's name; with --renew those it has.",
        ),
    ] = None,
    folder: Folder = CERTS,
    days: Days = 825,
    renew: Renew = False,
) -> None:
    """Make the certificate of the server.

    [bold]Examples[/]

      pisces certs server

      pisces certs server --host fl.example.org --host 192.0.2.7
    """
    from pisces.execute.network.trust.certs import Authority

    authority = Authority(folder)
    hosts = host or (renew and authority.hosts()) or _hosts()
    path, ends_at = authority.server(hosts, days, renew=renew)
    _say(f"{path}: key and certificate of the server, until {ends_at:%Y-%m-%d}")
    _say(f"next: pisces certs client NAME{_told(folder)}")


@app.command("client")
def client(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="What each client is called.")
    ],
    folder: Folder = CERTS,
    days: Days = 825,
    renew: Renew = False,
) -> None:
    """Make certificates of clients, one file for each.

    Hand a file to its client over a safe way: it has the private key in it.

    [bold]Example[/]

      pisces certs client alice bob
    """
    from pisces.execute.network.trust.certs import Authority

    for path, ends_at in Authority(folder).clients(names, days, renew=renew):
        _say(f"{path}: key and certificate of {path.stem}, until {ends_at:%Y-%m-%d}")


@app.command("revoke")
def revoke(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The client that is not to be let in any more.")
    ],
    folder: Folder = CERTS,
) -> None:
    """Revoke all certificates of a client.

    A server at work notices, if revoked.pem is in its folder.

    [bold]Example[/]

      pisces certs revoke alice
    """
    from pisces.execute.network.trust.certs import REVOKED, Authority

    number = Authority(folder).revoke(name)
    done = "is revoked" if number else "was revoked before"
    _say(f"{name} {done}: {folder / REVOKED}; a server on another machine needs a copy of it")


@app.command("list")
def list_(folder: Folder = CERTS, as_json: Json = False) -> None:
    """List all certificates, and when they expire.

    [bold]Example[/]

      pisces certs list
    """
    from pisces.execute.network.trust.certs import Authority

    issued = Authority(folder).issued()
    if as_json:
        print_json([_facts(each) for each in issued])
    else:
        stdout.print(_table(issued))


# --- how it is told -------------------------------------------------------------------------------


def _say(text: str) -> None:
    stdout.say(text)


def _told(folder: Path) -> str:
    return "" if folder == CERTS else f" --folder {folder}"


def _hosts() -> list[str]:
    """Where a server on this machine can be found, as far as can be told."""
    from pisces.execute.network.trust.signing import is_host

    own = socket.gethostname()
    return ["localhost", "127.0.0.1", "::1", *([own] if is_host(own) else [])]


def _facts(issued: Issued) -> dict[str, Any]:
    return {
        "name": issued.name,
        "kind": issued.kind,
        "serial": f"{issued.serial:040x}",
        "expires": issued.expires_at.isoformat(),
        "days_left": _days_left(issued),
        "revoked": issued.is_revoked,
        "hosts": list(issued.hosts),
    }


def _table(every: list[Issued]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("name", overflow="fold")
    for heading in ("kind", "serial", "expires", "", "revoked"):
        table.add_column(heading, no_wrap=True)
    for each in every:
        name = ", ".join(each.hosts) or each.name
        revoked = "[red]revoked[/]" if each.is_revoked else ""
        day = f"{each.expires_at:%Y-%m-%d}"
        serial = f"{each.serial:040x}"[:8]
        table.add_row(escape(name), each.kind, serial, day, _left(_days_left(each)), revoked)
    return table


def _left(days: int) -> str:
    if days < 0:
        return "[red]expired[/]"
    text = "today" if days == 0 else f"in {days} day{'s' * (days > 1)}"
    return f"[red]{text}[/]" if days < SOON else text


def _days_left(issued: Issued) -> int:
    """Whole days; below zero when it has expired."""
    return (issued.expires_at - datetime.now(UTC)).days
