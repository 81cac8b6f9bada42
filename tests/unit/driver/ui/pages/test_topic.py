"""A topic's pages: a hundred partitions each, however many there are."""

import re
from uuid import UUID

from sparklog.driver.controller.tables.machine.table_status import RefFiles, TableStatus
from sparklog.driver.ui.machine.status import Trouble
from sparklog.driver.ui.machine.topic_health import TopicHealth
from sparklog.driver.ui.machine.topic_settings import Setting
from sparklog.driver.ui.pages.html import UI_ROOT_MARK
from sparklog.driver.ui.pages.sections.partitions import trouble_badge
from sparklog.driver.ui.pages.topic import (
    PartitionMetrics,
    partitions_of_page,
    topic_page,
    unknown_topic_page,
)
from sparklog.driver.ui.pages.topics import topics_page
from sparklog.node.metadata.image import TopicImage
from tests.unit.driver.ui.cluster_images import image, partition
from tests.unit.driver.ui.pages.statuses import EVIL


def topic(partitions: int) -> TopicImage:
    return TopicImage("a", UUID(int=1), {number: partition() for number in range(partitions)})


def test_page_of_a_wide_topic_has_its_hundred_partitions_and_links_to_the_others() -> None:
    """Ten thousand partitions on one page would hold up browser and driver."""
    wide = topic(10_000)
    assert partitions_of_page(wide, 3) == list(range(200, 300))
    page = topic_page(wide, 3, min_insync_replicas=2, metrics={}, settings=(), remark=None)
    assert page.count("<tr>") == 1 + 100
    for number in (1, 2, 4, 100):
        assert f'href="{UI_ROOT_MARK}/log/topic/?name=a&amp;page={number}"' in page


def test_page_that_does_not_exist_is_the_nearest_one() -> None:
    """Addresses are typed, and partitions are fewer after a topic was made anew."""
    small = topic(5)
    assert partitions_of_page(small, 0) == partitions_of_page(small, 99) == list(range(5))
    page = topic_page(small, 99, min_insync_replicas=2, metrics={}, settings=(), remark=None)
    assert "Page " not in page


def test_partition_shows_what_its_leader_says_and_what_is_committed() -> None:
    """Offsets beside the ISR: what an operator compares."""
    page = topic_page(
        TopicImage(
            "a", UUID(int=1), {0: partition(1, isr=(1,), elr=(2,), last_known_elr=(0,), leader_epoch=8)}
        ),
        1,
        min_insync_replicas=1,
        metrics={0: PartitionMetrics(5, 1_234, 2_048, 10.0)},
        settings=[Setting("retention.ms", EVIL, is_own=True)],
        remark=None,
    )
    badge = trouble_badge(Trouble.UNDER_REPLICATED)
    body = page[page.index("<tbody>") : page.index("</tbody>")]
    producers = f'<a href="{UI_ROOT_MARK}/log/producers/?name=a&amp;partition=0">producers</a>'
    assert re.findall(r"<td[^>]*>(.*?)</td>", body) == [
        "0", badge, "1", "8", "0, 1, 2", "1", "2", "0", "5", "1,234", "2.0 KiB", "10.0/s", producers,
    ]  # fmt: skip
    assert "<img" not in page


def test_topic_that_is_a_table_shows_its_snapshot_and_what_keeps_it_from_going_on() -> None:
    """The state of a table is nowhere else to be seen but in the log."""
    held = (RefFiles(f"audit {EVIL}", 3, 4_096),)
    status = TableStatus("a", "topics.a", 17, {0: 5}, 1_234, f"another writer's {EVIL}", held=held)
    page = topic_page(
        topic(1), 1, min_insync_replicas=1, metrics={}, settings=(), remark=None, iceberg=status
    )
    assert "<code>topics.a</code> \N{MIDDLE DOT} snapshot 17 \N{MIDDLE DOT} 1,234 offsets to commit" in page
    assert "another writer" in page
    assert "keeps 3 files (4096 bytes) that the table no longer has" in page
    assert "<img" not in page


def test_topic_that_is_not_there_is_named_as_text() -> None:
    """The name is whatever stood in the address."""
    assert "<img" not in unknown_topic_page(EVIL)


def test_list_of_topics_has_a_page_for_each_hundred() -> None:
    """Thousands of topics are looked through by steps."""
    health = TopicHealth(lambda _: 1)
    health.look_at(image({f"topic-{number:04}": [partition()] for number in range(1_050)}))
    page, topics = topics_page(health, 11)
    assert [each.name for each in topics] == [f"topic-{number:04}" for number in range(1_000, 1_050)]
    assert page.count("<tr>") == 51
