"""The address of a client in ACLs, in Java's notation, since users' ACLs have it."""

from functools import lru_cache
from ipaddress import IPv6Address, ip_address


@lru_cache(maxsize=4096)
def _host(address: str) -> str:
    try:
        return shown_address(ip_address(address.strip("[]")).packed)
    except ValueError:
        return address


def host_of(peer: str) -> str:
    """Return the host of a peer, which is `host:port`.

    >>> host_of("10.0.0.7:4711"), host_of("[::1]:4711"), host_of("[::ffff:10.0.0.7]:4711")
    ('10.0.0.7', '0:0:0:0:0:0:0:1', '10.0.0.7')
    """
    return _host(peer.rpartition(":")[0])


def shown_address(packed: bytes) -> str:
    """Return an address of 4 or 16 bytes in Java's notation.

    Raises:
        ValueError: the address has neither 4 nor 16 bytes.
    """
    address = ip_address(packed)
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":"))
