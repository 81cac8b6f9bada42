"""Which process is which broker: by the port on which clients are told to find it."""

import psutil

__all__ = ["listening_processes"]


def listening_processes(ports: set[int]) -> set[int]:
    """Return the processes that listen on any of `ports`."""
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port in ports
    }
