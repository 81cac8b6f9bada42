"""Whether a host, by any of its names or addresses, is this machine.

A name that does not resolve here belongs to another machine.
"""

import socket
import time
from math import inf
from typing import Final

_NO_KEPT_S: Final = 60.0
"""A name server may have failed, or an address may be added to the machine."""
_MOST_KEPT: Final = 1024

_kept: dict[str, tuple[bool, float]] = {}
"""Answers by host, and until when they are used (monotonic)."""


def is_this_machine(host: str) -> bool:
    """Return whether one of the host's addresses is this machine's; a no is kept for a minute.

    May wait for a name server.
    """
    kept = _kept.get(host)
    if kept is not None and time.monotonic() < kept[1]:
        return kept[0]
    is_own = _has_own_address(host)
    if len(_kept) >= _MOST_KEPT:
        _kept.clear()
    _kept[host] = is_own, inf if is_own else time.monotonic() + _NO_KEPT_S
    return is_own


def _has_own_address(host: str) -> bool:
    for family, address in addresses(host):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return True
    return False


def addresses(host: str) -> set[tuple[socket.AddressFamily, str]]:
    """Return the addresses of a host, by family; empty for an unknown one."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):  # the latter: no host name can be so
        return set()
    return {
        (family, str(address[0]))
        for family, _, _, _, address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    }
