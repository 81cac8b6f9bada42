"""The use of brokers' disks by their answers to DescribeLogDirs (KIP-113, KIP-827).

The answers do not name file systems. Directories of one host count as in one file system if its size is the
same and its free space nearly so, and if all of their logs fit into the space that is used.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.driver.controller.machine.balancing.disks import DiskVolume, MeasuredDisks
from sparklog.protocol.types import BrokerId
from sparklog.user.client.log_dirs import BrokerDirectories, OnlineDirectory

_SAME_FREE_PART: Final = 0.001
"""The difference of free space, as a part of the size, that may come about between two answers."""


@dataclass(slots=True, eq=False)
class _FileSystem:
    host: str
    total_bytes: int
    free_bytes: int
    log_bytes: int = 0
    """The logs of all directories that it is known to hold."""

    def may_hold(self, host: str, directory: OnlineDirectory) -> bool:
        total, free = directory.total_bytes, directory.usable_bytes
        if (host, total) != (self.host, self.total_bytes) or free is None:
            return False
        is_as_free = abs(free - self.free_bytes) <= _SAME_FREE_PART * self.total_bytes
        return is_as_free and self.log_bytes + directory.log_bytes <= self.total_bytes - self.free_bytes


def described_disks(
    directories: Mapping[BrokerId, BrokerDirectories], hosts: Mapping[BrokerId, str]
) -> dict[BrokerId, MeasuredDisks]:
    """Return the disks of those brokers that have described them in full; `hosts` are their addresses."""
    found: list[_FileSystem] = []
    disks: dict[BrokerId, MeasuredDisks] = {}
    for broker_id, described in sorted(directories.items()):
        volumes: dict[Hashable, DiskVolume] = {}
        for directory in described.online:
            total, free = directory.total_bytes, directory.usable_bytes
            if total is None or free is None:
                break
            holding = [each for each in found if each.may_hold(hosts[broker_id], directory)]
            if not holding:
                holding = [_FileSystem(hosts[broker_id], total, free)]
                found += holding
            file_system = holding[0]
            file_system.log_bytes += directory.log_bytes
            volume = found.index(file_system)
            others = volumes.get(volume, DiskVolume(0, 0))
            volumes[volume] = DiskVolume(others.log_bytes + directory.log_bytes, file_system.free_bytes)
        else:
            if volumes:
                disks[broker_id] = MeasuredDisks(volumes, described.sizes, 0)
    return disks
