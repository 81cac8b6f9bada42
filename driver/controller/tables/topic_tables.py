"""The tables of a cluster's topics, beside the controller: one `TableKeeper` for each.

A failure of a table, of its catalogue or of pyiceberg touches neither the controller nor another table.
pyiceberg is loaded in a thread, and only once a topic has a table.
"""

import asyncio
import importlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from sparklog.driver.controller.tables.catalog_threads import SILENCE_S, CatalogThreads
from sparklog.driver.controller.tables.machine.events import (
    ConfigChanged,
    PartitionedBy,
    Retention,
    TableIdentity,
    TableSettings,
    TopicDeleted,
)
from sparklog.driver.controller.tables.machine.table_files import table_prefix
from sparklog.driver.controller.tables.machine.table_status import TableStatus
from sparklog.driver.controller.tables.machine.topic_table import TopicTable
from sparklog.driver.controller.tables.redaction import Redaction
from sparklog.driver.controller.tables.store_properties import left_out, store_properties, table_uri
from sparklog.driver.controller.tables.table_errors import TableRefusedError
from sparklog.driver.controller.tables.table_keeper import TableKeeper
from sparklog.driver.controller.tables.table_marker import MarkerFormatError, TableMarker, decode_marker
from sparklog.node.config import BrokerConfig, ConfigError, topic_config
from sparklog.node.config.keys.table_keys import TABLE_ENABLE, TableConfig, table_config
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.remote_log.machine.names import TABLE_MARKERS
from sparklog.node.remote_log.object_store import ObjectMissingError, ObjectStore, StoreError
from sparklog.node.remote_log.segments.segment_format import SCHEMA
from sparklog.node.remote_log.uri import OPTION_PREFIX

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from sparklog.driver.controller.tables.iceberg_table import IcebergTable

RETRY_S: Final = 10.0
_MOST_WARNED: Final = 100
_ICEBERG: Final = "sparklog.driver.controller.tables.iceberg_table"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Wanted:
    config: TableConfig
    partitions: int


class TopicTables:
    """Belongs to the controller's loop."""

    def __init__(
        self,
        store: ObjectStore,
        config: BrokerConfig,
        owner_epoch: int,
        is_owner: Callable[[], Awaitable[bool]],
        on_finished: Callable[[str, UUID], None],
        known_until_ms: int | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        """`is_owner` reads the owner of the store; `on_finished` gets deleted topics that tables let go.

        `known_until_ms`: see `DeletedTopics.sweep`; `silence_s`: see `catalog_threads`.
        """
        self._known_until_ms: Final = known_until_ms
        self._resuming: asyncio.Task[None] | None = None
        self._resumes_again = False
        """Whether markers have to be looked at that `_resuming` may have passed."""
        self._on_finished: Final = on_finished
        self._store: Final = store
        self._config: Final = config
        self._owner_epoch: Final = owner_epoch
        self._is_owner: Final = is_owner
        self._redaction: Final = Redaction(config.table_catalog, config.remote_options)
        self._warned: Final[set[str]] = set()
        self._threads: Final = CatalogThreads(silence_s)
        self._catalog: Catalog | None = None
        self._catalog_opened_after = 0
        """So many calls that were given up: an older catalogue may still be in use by their threads."""
        self._keepers: Final[dict[UUID, TableKeeper]] = {}
        self._wanted: Final[dict[UUID, _Wanted]] = {}
        self._tasks: Final[dict[UUID, asyncio.Task[None]]] = {}
        self._image: MetadataImage | None = None

    @property
    def statuses(self) -> tuple[TableStatus, ...]:
        return tuple(keeper.status for keeper in list(self._keepers.values()))

    def committed(self, image: MetadataImage) -> None:
        """Start, change and end Iceberg tables so that they match the topics of a committed image."""
        before, self._image = self._image, image
        if before is None:
            self._resume_soon()
        elif before.topics is image.topics and before.configs is image.configs:
            return
        for name, topic in image.topics.by_name.items():
            with self._contained(name):
                config = self._config_of(image, name)
                wanted = None if config is None else _Wanted(config, len(topic.partitions))
                if wanted is not None and self._wanted.get(topic.topic_id) != wanted:
                    self._change(name, topic.topic_id, wanted)
        for topic_id in list(self._wanted):
            with self._contained(str(topic_id)):
                self._end_unwanted(image, topic_id)
        if (
            before is not None
            and before.topics.by_id.keys() - image.topics.by_id.keys() - self._keepers.keys()
        ):
            # One of them may have been a table once.
            self._resume_soon()

    def _end_unwanted(self, image: MetadataImage, topic_id: UUID) -> None:
        if self._is_wanted(image, topic_id):
            return
        if topic_id in image.topics.by_id:
            self._end(topic_id)
        else:
            del self._wanted[topic_id]
            self._keepers[topic_id].note(TopicDeleted())

    @contextmanager
    def _contained(self, topic: str) -> Iterator[None]:
        """Let an error of one topic neither end the controller nor reach another topic's table."""
        try:
            yield
        except Exception as error:
            self._warn_once(f"The table of topic {topic} is not kept: {self._redaction.trace(error)}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            if len(self._warned) >= _MOST_WARNED:
                self._warned.clear()
            self._warned.add(text)
            logger.warning("%s", text)

    def _resume_soon(self) -> None:
        self._resumes_again = True
        if self._resuming is None or self._resuming.done():
            self._resuming = asyncio.get_running_loop().create_task(self._resume())

    async def _resume(self) -> None:
        """Go on with the tables of topics that a former controller has deleted."""
        while self._resumes_again:
            self._resumes_again = False
            try:
                await self._begin_marked()
            except StoreError as error:
                self._resumes_again = True
                self._warn_once(f"Tables of deleted topics are looked for again: {error}")
                await asyncio.sleep(RETRY_S)

    async def _begin_marked(self) -> None:
        assert self._image is not None, "an image comes first"
        found = [each async for each in self._store.list(TABLE_MARKERS)]
        unread: StoreError | None = None
        for each in found:
            if self._known_until_ms is not None and each.modified_ms > self._known_until_ms:
                continue
            try:
                marker = decode_marker(each.name, (await self._store.get(each.name)).data)
            except (MarkerFormatError, ObjectMissingError) as error:
                self._warn_once(f"A table of a deleted topic stays as it is: {error}")
                continue
            except StoreError as error:
                unread = error
                continue
            is_known = marker.topic_id in self._image.topics.by_id or marker.topic_id in self._keepers
            if not marker.finished and not is_known:
                with self._contained(marker.topic):
                    self._begin_deleted(marker)
        if unread is not None:
            raise unread

    def _begin_deleted(self, marker: TableMarker) -> None:
        config = TableConfig(
            tuple(marker.table.split(".")),
            marker.partitioned_by,
            marker.retention is Retention.FOREVER,
            "",
        )
        self._begin(marker.topic, marker.topic_id, _Wanted(config, marker.partitions))
        self._keepers[marker.topic_id].note(TopicDeleted())

    def _config_of(self, image: MetadataImage, topic: str) -> TableConfig | None:
        given = image.topic_configs(topic)
        if TABLE_ENABLE not in given:
            # The key has no default of the broker's. Each change of any topic asks this of all topics.
            return None
        try:
            return table_config(topic_config(self._config, given), topic)
        except ConfigError:  # of another version of sparklog
            return None

    def _is_wanted(self, image: MetadataImage, topic_id: UUID) -> bool:
        topic = image.topics.by_id.get(topic_id)
        return topic is not None and self._config_of(image, topic.name) is not None

    def _change(self, topic: str, topic_id: UUID, wanted: _Wanted) -> None:
        settings = self._settings(wanted.config)
        before = self._wanted.get(topic_id)
        self._wanted[topic_id] = wanted
        if before is not None and before.config.identifier == wanted.config.identifier:
            self._keepers[topic_id].note(ConfigChanged(settings, wanted.partitions))
            return
        if before is not None:
            self._end(topic_id)
            self._wanted[topic_id] = wanted
        self._begin(topic, topic_id, wanted)

    def _begin(self, topic: str, topic_id: UUID, wanted: _Wanted) -> None:
        settings = self._settings(wanted.config)
        identity = TableIdentity(topic, topic_id, ".".join(wanted.config.identifier))
        machine = TopicTable(identity, self._owner_epoch, secrets.token_hex(8), settings, wanted.partitions)
        keeper = TableKeeper(
            machine,
            self._store,
            lambda: self._open(identity, settings),
            self._threads,
            self._is_owner,
            self._redaction,
        )
        self._keepers[topic_id] = keeper
        self._tasks[topic_id] = asyncio.get_running_loop().create_task(self._keep(keeper))

    async def _keep(self, keeper: TableKeeper) -> None:
        topic, topic_id, table = keeper.machine.identity
        await keeper.run()
        logger.info("Topic %s is deleted, and its table %s needs no more commits", topic, table)
        del self._keepers[topic_id], self._tasks[topic_id]
        self._on_finished(topic, topic_id)

    def _end(self, topic_id: UUID) -> None:
        del self._keepers[topic_id], self._wanted[topic_id]
        self._tasks.pop(topic_id).cancel()

    def _settings(self, config: TableConfig) -> TableSettings:
        return TableSettings(
            self._config.sparklog_table_commit_interval_ms,
            self._config.sparklog_table_snapshot_retention_ms,
            Retention.FOREVER if config.keeps_rows else Retention.TOPIC,
            PartitionedBy(config.partition_by),
            config.value_schema,
        )

    def _open(self, identity: TableIdentity, settings: TableSettings) -> "IcebergTable":
        """Return the table in the catalogue; blocks, in a thread."""
        try:
            iceberg: Any = importlib.import_module(_ICEBERG)
        except ImportError as error:
            raise TableRefusedError(
                f"topics as tables need pyiceberg ({error}): install sparklog[iceberg] on the driver"
            ) from error
        uri, options = self._config.remote_uri, self._config.remote_options
        assert uri is not None, "tables are made of files in a store"
        catalog, given_up = self._catalog, self._threads.given_up
        if catalog is None or self._catalog_opened_after != given_up:
            properties = store_properties(uri, options) | dict(self._config.table_catalog)
            catalog = iceberg.open_catalog(properties)
            self._catalog, self._catalog_opened_after = catalog, given_up
            self._warn_of_options(uri, options)
        table: IcebergTable = iceberg.IcebergTable(
            catalog,
            identity,
            table_uri(uri, options),
            table_prefix(identity.topic, identity.topic_id),
            SCHEMA,
            settings.partitioned_by,
        )
        return table

    def _warn_of_options(self, uri: str, options: Mapping[str, str]) -> None:
        names = left_out(uri, options, self._config.table_catalog)
        if names:
            self._warn_once(
                "pyiceberg, which writes tables, has no property for "
                + ", ".join(f"{OPTION_PREFIX}{name}" for name in names)
                + ": give the driver's machine what its libraries read (GOOGLE_APPLICATION_CREDENTIALS, the"
                " certificate authorities of the system)"
            )

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *([] if self._resuming is None else [self._resuming])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
