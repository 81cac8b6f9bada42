"""Marker of a log directory in use by a broker: `.sparklog_running`, a file of ours.

A killed process loses none of its writes while the machine keeps running: the page cache is the kernel's. The
file names the kernel's boot and the broker epoch; the next owner in the same boot knows that the last one was
killed (`PreviousStop.KILLED`), and that its replicas have all records that it had acknowledged (KIP-966 asks
for that at the registration). It has no meaning in another boot, so it is not fsynced.

Rule kept: a directory whose disk has failed has no such file. Data dropped by a failed fsync is lost even if
the page cache still has it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparklog.node.storage.files import replace_file
from sparklog.protocol.types import BrokerEpoch

RUNNING_MARKER: Final = ".sparklog_running"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RunningMarker(NamedTuple):
    """Boot of the machine, and broker epoch, under which a directory was last used."""

    boot_id: str
    broker_epoch: BrokerEpoch


def boot_id() -> str | None:
    """Return the kernel's boot id; None if it has none."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


def read_marker(directory: Path) -> RunningMarker | None:
    """Return the directory's marker; None if it has none or an unreadable one."""
    try:
        content: Mapping[str, Any] = json.loads((directory / RUNNING_MARKER).read_bytes())
        marker = RunningMarker(content["bootId"], content["brokerEpoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return marker if isinstance(marker.boot_id, str) and isinstance(marker.broker_epoch, int) else None


def write_marker(directory: Path, marker: RunningMarker) -> None:
    """Record the boot and broker epoch under which the directory is in use.

    Raises:
        OSError: it cannot be written.
    """
    content = {"version": 0, "bootId": marker.boot_id, "brokerEpoch": marker.broker_epoch}
    replace_file(directory / RUNNING_MARKER, json.dumps(content, separators=(",", ":")).encode(), sync=False)
