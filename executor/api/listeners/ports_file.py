"""The ports of a broker's last start: `.sparklog_ports`, a file of ours beside the metadata log.

A port that the system chooses is another one at each start. Clients that go by the brokers' addresses alone
have lost the cluster once all of them are others: those that were given brokers to begin with, and Kafka's
own before 4.0, which never return to their bootstrap servers (KIP-899). So a broker returns to its
former ports. Where another process has taken one, any port will do, as at its first start.

Nothing rests on the file: it is not fsynced, and one that can't be read is none.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparklog.node.storage.files import replace_file

PORTS_FILE: Final = ".sparklog_ports"
_MAX_PORT: Final = 65535


def read_ports_file(directory: Path) -> dict[str, int]:
    """Return the port of each listener by its name; empty without a readable file."""
    try:
        content: Mapping[str, Any] = json.loads((directory / PORTS_FILE).read_bytes())
        ports = dict(content["ports"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {name: port for name, port in ports.items() if isinstance(port, int) and 0 < port <= _MAX_PORT}


def write_ports_file(directory: Path, ports: Mapping[str, int]) -> None:
    """Write the listeners' ports.

    Raises:
        OSError: it cannot be written.
    """
    content = {"version": 0, "ports": dict(ports)}
    replace_file(directory / PORTS_FILE, json.dumps(content, separators=(",", ":")).encode(), sync=False)
