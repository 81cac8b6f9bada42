"""What a log directory says while a broker has it open: `.sparklog_running`, a file of ours.

A killed process loses nothing that it had written, as long as the machine goes on: the page cache is the
kernel's. The file names the kernel's boot and the broker epoch; whoever finds it in the same boot knows how
the last owner ended (`PreviousStop.KILLED`), and that its replicas have all they had acknowledged (KIP-966
asks for that at the registration). It says nothing in another boot, so it is not fsynced.

Rule kept: a directory whose disk has failed has no such file. What a failed fsync has dropped is not there,
whatever the page cache may say.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from sparklog.storage.files import replace_file
from sparklog.types import BrokerEpoch

RUNNING_MARKER: Final = ".sparklog_running"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class RunningMarker(NamedTuple):
    """Under which boot of the machine, and which broker epoch, a directory was last used."""

    boot_id: str
    broker_epoch: BrokerEpoch


def boot_id() -> str | None:
    """Return what names the present run of the kernel, None where it has no such name."""
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


def read_marker(directory: Path) -> RunningMarker | None:
    """Return the directory's marker, None if it has none or not a readable one."""
    try:
        content: Mapping[str, Any] = json.loads((directory / RUNNING_MARKER).read_bytes())
        marker = RunningMarker(content["bootId"], content["brokerEpoch"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return marker if isinstance(marker.boot_id, str) and isinstance(marker.broker_epoch, int) else None


def write_marker(directory: Path, marker: RunningMarker) -> None:
    """Say under which boot and broker epoch the directory is used from now on.

    Raises:
        OSError: it cannot be written.
    """
    content = {"version": 0, "bootId": marker.boot_id, "brokerEpoch": marker.broker_epoch}
    replace_file(directory / RUNNING_MARKER, json.dumps(content, separators=(",", ":")).encode(), sync=False)
