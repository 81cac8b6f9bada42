"""Readers of a partition hear of its progress, also of what they themselves are the cause of."""

from sparklog.executor.partitions.progress import PartitionProgress


class LeavingReader:
    """Acts when it is woken, as a coordinator does, and reads no more afterwards."""

    is_follower = False

    def __init__(self, progress: PartitionProgress) -> None:
        self._progress = progress
        self.woken = 0

    def touch(self) -> None:
        """Nothing to tell."""

    def wake(self) -> None:
        """Leave."""
        self.woken += 1
        self._progress.remove_reader(self)

    def unwatch(self) -> None:
        """Nothing is watched."""


def test_commit_whose_reader_leaves_wakes_the_others() -> None:
    """A coordinator that sends markers may find its lease out; the commit that woke it must not fail."""
    progress = PartitionProgress(0)
    readers = [LeavingReader(progress) for _ in range(3)]
    for reader in readers:
        progress.add_reader(reader)
    progress.committed(1)
    progress.committed(2)
    assert [reader.woken for reader in readers] == [1, 1, 1]
