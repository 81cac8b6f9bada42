"""Addresses of brokers and controller: Kafka's listener notation, parsed and checked.

    listeners = NAME://host:port, ...        advertised.listeners = the same
    listener.security.protocol.map = NAME:PROTOCOL, ...
    controller.quorum.bootstrap.servers = host:port or NAME://host:port, ...

Rule: only loopback is listened on unless the configuration names the address. So an omitted host (in Kafka:
every interface) is refused; 0.0.0.0 or :: is explicit.
"""

import contextlib
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from sparklog.node.config.definition import ConfigError
from sparklog.node.endpoints import Endpoint, SecurityProtocol

_MAX_PORT: Final = 65535
_BUILT_IN_PROTOCOLS: Final[Mapping[str, SecurityProtocol]] = {
    protocol.name: protocol for protocol in SecurityProtocol
}


def is_wildcard(host: str) -> bool:
    """Return whether `host` stands for every interface: an address to listen on, but not to connect to."""
    with contextlib.suppress(OSError):
        return socket.inet_aton(host) == bytes(4)
    with contextlib.suppress(OSError):
        return socket.inet_pton(socket.AF_INET6, host) in (bytes(16), bytes(10) + b"\xff\xff" + bytes(4))
    return False


class HostPort(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_protocol_map(text: str) -> Mapping[str, SecurityProtocol]:
    """Return the security protocol of each listener name.

    Raises:
        ConfigError: not NAME:PROTOCOL pairs, or an unknown protocol.
    """
    protocols: dict[str, SecurityProtocol] = dict(_BUILT_IN_PROTOCOLS)
    for pair in filter(None, (item.strip() for item in text.split(","))):
        name, separator, protocol = pair.partition(":")
        if not separator or protocol not in SecurityProtocol.__members__:
            allowed = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(
                "listener.security.protocol.map", text, f"expected NAME:PROTOCOL pairs of {allowed}"
            )
        protocols[name.upper()] = SecurityProtocol[protocol]
    return protocols


def parse_listeners(
    key: str, values: Iterable[str], protocols: Mapping[str, SecurityProtocol]
) -> tuple[Endpoint, ...]:
    """Return the endpoints of `listeners` or `advertised.listeners`.

    Raises:
        ConfigError: the list is empty, or an entry is malformed, has no host, or has the name or address of
            another.
    """
    endpoints: list[Endpoint] = []
    for value in values:
        name, separator, address = value.partition("://")
        name = name.upper()
        if not separator or not name:
            raise ConfigError(key, value, "expected NAME://host:port")
        host, port = _split_address(key, value, address)
        if not host:
            raise ConfigError(
                key,
                value,
                "the host is missing: 127.0.0.1 for this machine only, 0.0.0.0 for every interface",
            )
        if name not in protocols:
            raise ConfigError(key, value, f"listener.security.protocol.map has no protocol for {name}")
        if any(endpoint.name == name for endpoint in endpoints):
            raise ConfigError(key, value, f"the name {name} is used twice")
        if port and any((endpoint.host, endpoint.port) == (host, port) for endpoint in endpoints):
            raise ConfigError(key, value, "another listener has the same address")
        endpoints.append(Endpoint(name, host, port, protocols[name]))
    if not endpoints:
        raise ConfigError(key, "", "expected at least one NAME://host:port")
    if key == "advertised.listeners":
        for endpoint in endpoints:
            if is_wildcard(endpoint.host):
                raise ConfigError(key, endpoint.host, "clients cannot connect to it; name a reachable host")
    return tuple(endpoints)


class BootstrapServer(NamedTuple):
    listener_name: str
    """The brokers' listener for the same clients: the driver uses its protocol and returns its addresses."""
    address: HostPort


def parse_bootstrap_servers(
    values: Iterable[str], listener_names: Sequence[str]
) -> tuple[BootstrapServer, ...]:
    """Return the addresses of controller.quorum.bootstrap.servers.

    An entry without a name is for the first of the brokers' listeners.

    Raises:
        ConfigError: the list is empty, or an entry is neither host:port nor NAME://host:port, stands for
            every interface, has the address of another, or names no listener.
    """
    key = "controller.quorum.bootstrap.servers"
    servers: list[BootstrapServer] = []
    for value in values:
        name, separator, address = value.rpartition("://")
        name = name.upper() if separator else listener_names[0]
        if name not in listener_names:
            raise ConfigError(key, value, f"brokers have no listener of the name {name} (listeners)")
        host, port = _split_address(key, value, address)
        if not host:
            raise ConfigError(key, value, "the host is missing")
        if is_wildcard(host):
            raise ConfigError(
                key,
                value,
                "brokers and clients cannot connect to this address; name the driver's host,"
                " or one of its addresses, as they reach it",
            )
        if port and any(server.address == (host, port) for server in servers):
            raise ConfigError(key, value, "another one has the same address")
        servers.append(BootstrapServer(name, HostPort(host, port)))
    if not servers:
        raise ConfigError(key, "", "expected host:port")
    return tuple(servers)


def advertised_endpoints(
    advertised: Iterable[Endpoint], bound: Iterable[Endpoint], host_name: str
) -> tuple[Endpoint, ...]:
    """Return the endpoint to advertise for each bound one; see `BrokerConfig.advertised_endpoints`."""
    by_name = {endpoint.name: endpoint for endpoint in advertised}
    result = []
    for endpoint in bound:
        explicit = by_name.get(endpoint.name)
        if explicit is not None:
            result.append(replace(explicit, port=explicit.port or endpoint.port))
        elif is_wildcard(endpoint.host):
            result.append(replace(endpoint, host=host_name))
        else:
            result.append(endpoint)
    return tuple(result)


def _split_address(key: str, value: str, address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= len(str(_MAX_PORT))
    if not separator or not is_port or int(port) > _MAX_PORT:
        raise ConfigError(key, value, "expected a port from 0 to 65535 after the last colon")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(key, value, "an IPv6 address must stand in brackets")
    try:
        host.encode("idna")  # the first step of every DNS look-up
    except UnicodeError:
        raise ConfigError(
            key, value, "a host name has parts of 1 to 63 characters between its dots"
        ) from None
    if not host.isprintable():
        raise ConfigError(key, value, "a host name has no unprintable characters")
    return host, int(port)
