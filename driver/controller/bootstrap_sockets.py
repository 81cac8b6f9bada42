"""The sockets of the driver's listeners, one for each address of controller.quorum.bootstrap.servers.

The driver's own process binds them and keeps them open: when the controller's process ends, the next one
serves at the same ports.
"""

import socket

from sparklog.node.config import BrokerConfig, HostPort
from sparklog.node.serving.listening import listening_socket


class CannotListenError(OSError):
    """An address of controller.quorum.bootstrap.servers cannot be bound."""

    def __init__(self, address: HostPort, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.address = address


def bootstrap_sockets(config: BrokerConfig) -> list[socket.socket]:
    """Bind the addresses of all bootstrap servers, and listen there.

    Raises:
        CannotListenError: one of the addresses cannot be bound; no socket is left open.
    """
    sockets: list[socket.socket] = []
    for server in config.controller_quorum_bootstrap_servers:
        address = server.address
        try:
            sockets.append(listening_socket(address.host, address.port, config.socket_settings()))
        except OSError as error:
            for bound in sockets:
                bound.close()
            raise CannotListenError(address, error) from error
    return sockets
