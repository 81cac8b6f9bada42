"""The identity of the file system in which a directory lies, also among the processes of one host."""

import os
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Of the kernel: containers of one host have the same."""
_ID_BYTES: Final = 6
"""Few enough for a metric's value, a float, to have them all."""


def file_system_id(descriptor: int) -> int:
    """Return a number that files of one file system have in common, and others with near certainty not.

    Raises:
        OSError: the descriptor is not open.
    """
    named = f"{_host()} {os.fstat(descriptor).st_dev}"
    return int.from_bytes(blake2b(named.encode(), digest_size=_ID_BYTES).digest())


@cache
def _host() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return os.uname().nodename  # no Linux
