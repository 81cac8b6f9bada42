"""What the log says of a cluster that begins again: where each partition goes on, and what begins empty."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.driver.controller.remote.loss_report import report_losses
from sparklog.node.remote_log.machine.manifest import EpochStart, Manifest
from sparklog.node.remote_log.machine.manifest_encoding import encode_manifest
from sparklog.node.remote_log.machine.names import manifest_name
from tests.faulty_store import MemoryStore
from tests.unit.driver.ui.cluster_images import image, partition

TOPIC_ID = UUID(int=100)
"""Of the first topic of an image."""
MANIFEST = Manifest(
    topic="t",
    topic_id=TOPIC_ID,
    partition=0,
    owner_epoch=1,
    leader_epoch=3,
    log_start_offset=0,
    end_offset=342,
    segments=(),
    leader_epochs=(EpochStart(0, 0),),
    producers=None,
    unreferenced=(),
    written_ms=1_000,
)


def reported(
    manifests: list[Manifest], caplog: pytest.LogCaptureFixture, *, lost_nothing: bool = False
) -> list[str]:
    store = MemoryStore()
    restored = image({"t": [partition(leader_epoch=1_003) for _ in range(3)], "u": [partition()]})

    async def story() -> None:
        for each in manifests:
            await store.create(manifest_name(each.topic_id, each.partition), encode_manifest(each))
        await report_losses(store, restored, 2, lost_nothing=lost_nothing)

    asyncio.run(story())
    return [record.getMessage() for record in caplog.records if "loss_report" in record.name]


def test_end_without_a_stop_is_told_by_partition(caplog: pytest.LogCaptureFixture) -> None:
    """An operator must see which records of which partitions are gone."""
    taken_over = replace(MANIFEST, partition=1, owner_epoch=2, end_offset=9)
    assert reported([MANIFEST, taken_over], caplog) == [
        "Nothing of these topics is in memory://, they begin empty: u",
        "The cluster ended without a complete copy: partitions of t go on as follows, and records that were "
        "acknowledged after the copy are lost: 0 at offset 342 in leader epoch 1003, copied "
        "1970-01-01T00:00:01.000+00:00; 1 at offset 9 in leader epoch 1003; 2 empty",
    ]


def test_orderly_stop_leaves_only_topics_without_a_tier_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing else is lost."""
    assert reported([MANIFEST], caplog, lost_nothing=True) == [
        "Nothing of these topics is in memory://, they begin empty: u"
    ]
