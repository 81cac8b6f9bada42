"""The reaction of a broker to a failed log or directory, and to a damaged log of a leader.

A log fails alone where its files are to blame, and with its directory where the disk is (KIP-112). The
controller gets one report: of a directory by the heartbeat, of a single replica by `DirectoryReports`.
"""

from collections.abc import Callable

from sparklog.executor.partitions.machine.directory_reports import DirectoryReports
from sparklog.executor.partitions.replica import Replica
from sparklog.executor.partitions.table import PartitionTable
from sparklog.node.storage.directory.log_directory import LogDirectory
from sparklog.node.storage.log.log import Log
from sparklog.protocol.types import BrokerId


class StorageFailures:
    def __init__(
        self,
        broker_id: BrokerId,
        table: PartitionTable,
        reports: DirectoryReports,
        directory_of: Callable[[Log], LogDirectory],
        on_directory_failed: Callable[[LogDirectory], None],
    ) -> None:
        """`on_directory_failed` is called once with each directory that goes offline."""
        self._broker_id = broker_id
        self._table = table
        self._reports = reports
        self._directory_of = directory_of
        self._on_directory_failed = on_directory_failed

    def log_failed(self, replica: Replica, error: BaseException) -> None:
        """The log of a replica failed; with it, if the disk is why, the directory.

        A thread that used the log may report this after the replica was dropped.
        """
        directory = self._directory_of(replica.log)
        if replica in self._table and (
            not directory.is_failed_by(error) or self._is_assigned_elsewhere(replica, directory)
        ):
            self._lost(replica)
        if directory.is_failed_by(error):
            self.directory_failed(directory, error)

    def log_damaged(self, replica: Replica) -> None:
        """Report that a replica with a damaged log must leave the ISR, and another one must lead."""
        self._reports.found_damage(replica.key)
        self._report(replica)

    def is_in_sync_with_others(self, replica: Replica) -> bool:
        """Whether the metadata has a replica of this broker in the ISR, and is not left with it alone."""
        registration = self._table.image.topics.partition(*replica.key)
        return registration is not None and {self._broker_id} < {*registration.isr}

    def directory_failed(self, directory: LogDirectory, error: BaseException) -> None:
        """Take a directory with a failed disk, and all its replicas, offline until the broker restarts."""
        if not directory.fail(error):
            return
        for replica in self._table:
            if self._directory_of(replica.log) is directory:
                if not replica.offline:
                    replica.go_offline()
                if self._is_assigned_elsewhere(replica, directory):
                    self._lost(replica)
        self._on_directory_failed(directory)

    def _is_assigned_elsewhere(self, replica: Replica, directory: LogDirectory) -> bool:
        """Whether the failed directory does not imply for the controller that the replica is lost.

        A replica that is about to move is reported in its new directory before it moves.
        """
        registration = self._table.image.topics.partition(*replica.key)
        assigned = None if registration is None else registration.directory_of(self._broker_id)
        return directory.meta is None or assigned != directory.meta.directory_id

    def _lost(self, replica: Replica) -> None:
        self._reports.lost(replica.key)
        self._report(replica)

    def _report(self, replica: Replica) -> None:
        registration = self._table.image.topics.partition(*replica.key)
        if registration is not None:
            self._reports.image_changed(replica.key, registration)
