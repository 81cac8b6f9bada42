"""A task's read of a history: it goes on when objects are replaced, and ends early when they are unavailable.

An object that is gone was merged with its neighbours, or expired. The manifest is read again then, and says
which objects have the rest. A store that does not answer is tried again after pauses. Where it has nothing,
or still does not answer, the task reads on from `position` through brokers, which report what is lost.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from uuid import UUID

from sparklog.node.remote_log.machine.manifest_encoding import ManifestFormatError
from sparklog.node.remote_log.object_store import ObjectMissingError, StoreError, StoreUnavailableError
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.node.remote_log.stored_manifest import read_manifest
from sparklog.node.remote_log.uri import RemoteUriError
from sparklog.protocol.types import TopicPartition
from sparklog.user.dataframe.remote.history import History, history_of
from sparklog.user.dataframe.remote.history_reader import HistoryRows, history_rows
from sparklog.user.dataframe.remote.store_thread import StoreThread, opened
from sparklog.user.dataframe.warn_once import warn_once

_PAUSES_S: Final = (1.0, 2.0, 4.0)
"""Before the store is tried again, beside what its client repeats; progress begins them again."""


class HistoryReads:
    def __init__(
        self,
        location: StoreLocation,
        topic_partition: TopicPartition,
        topic_id: UUID,
        history: History,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.position = history.start_offset
        """All records below it have been given."""
        self._location: Final = location
        self._topic_partition: Final = topic_partition
        self._topic_id: Final = topic_id
        self._history: History | None = history
        self._pause: Final = pause

    def rows(self, columns: Sequence[str], *, check_crcs: bool) -> Iterator[HistoryRows]:
        """Yield the rows of the history, in order; brokers have those from `position` on."""
        try:
            store = opened(self._location)
            failures = 0
            while (history := self._history) is not None:
                try:
                    try:
                        for found in history_rows(store, history, columns, check_crcs=check_crcs):
                            self.position = found.next_offset
                            failures = 0
                            yield found
                    except ObjectMissingError:
                        self._history = self._again(store, history)
                    else:
                        self.position = history.end_offset
                        return
                except StoreUnavailableError:
                    if failures == len(_PAUSES_S):
                        raise
                    self._pause(_PAUSES_S[failures])
                    failures += 1
                    self._history = history.within(self.position, history.end_offset)
        except (StoreError, ManifestFormatError, RemoteUriError) as error:
            warn_once(
                f"Records of the tier are read through brokers, since the store cannot be read here: {error}"
            )

    def _again(self, store: StoreThread, before: History) -> History | None:
        """Return what the present manifest has of the rest; None if that has no other objects for it.

        Raises:
            StoreError, ManifestFormatError: the manifest cannot be read.
        """
        stored = store.read(read_manifest(store.store, self._topic_id, self._topic_partition.partition))
        rest = history_of(stored.manifest).within(self.position, before.end_offset)
        missing = before.within(self.position, before.end_offset)
        if rest is None or missing is None or rest.owner_epoch != before.owner_epoch:
            return None
        if rest.pieces[:1] == missing.pieces[:1]:
            return None
        return rest
