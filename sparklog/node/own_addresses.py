"""Whether a host, by any of its names or addresses, is this machine.

A name that does not resolve here belongs to another machine.
"""

import socket
from functools import lru_cache


@lru_cache(maxsize=1024)
def is_this_machine(host: str) -> bool:
    """Return whether one of the host's addresses is this machine's; the answer is kept with the process."""
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
    except OSError:
        return set()
    return {
        (family, str(address[0]))
        for family, _, _, _, address in found
        if family in (socket.AF_INET, socket.AF_INET6)
    }
