"""Which names of hosts lead to this machine and to no other."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Does nothing leave this machine that goes there? An address may be in brackets."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
