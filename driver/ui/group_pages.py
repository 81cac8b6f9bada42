"""Pages of groups, made on request from their coordinators' answers and the partitions' end offsets."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from sparklog.driver.ui.asked_page import AskedPage
from sparklog.driver.ui.machine.coordinators import coordinator_of, coordinators, leader_of, missing
from sparklog.driver.ui.machine.groups import (
    Extent,
    GroupStatus,
    GroupSummary,
    by_trouble,
    group_status,
    summaries,
)
from sparklog.driver.ui.pages.groups import group_page, groups_page, unknown_group_page
from sparklog.driver.ui.pages.html import Html, element
from sparklog.driver.ui.pages.remarks import lacking, said_of
from sparklog.driver.ui.pages.tables import pages_of, rows_of_page
from sparklog.driver.ui.questions import Answer, Questions
from sparklog.node.calling.blocking import ResponseTooLargeError
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.groups import CONSUMER_TYPE, committed_offsets, describe_groups, list_groups
from sparklog.user.client.offsets import high_watermarks, log_start_offsets

MAX_PARTITIONS: Final = 20_000
"""The partitions whose leaders are asked for a page, at most; the lag of others is unknown."""


class _Groups(NamedTuple):
    group_count: int
    groups: tuple[GroupSummary, ...]
    missing: str | None


class GroupPages:
    """Makes pages of groups; belongs to one thread."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def groups(self, image: MetadataImage, asked: AskedPage) -> tuple[Html, Any]:
        """Return a page of the list of groups, as HTML and as data for JSON."""
        answer: Answer[_Groups] = self._questions.ask(
            ("groups", asked.page), lambda client, _: _look_at_all(client, image, asked.page)
        )
        known = answer.known or _Groups(0, (), None)
        html = groups_page(said_of(answer, known.missing), known.groups, known.group_count, asked.page)
        return html, {
            "group_count": None if answer.known is None else known.group_count,
            "missing": lacking(answer, known.missing),
            "age_ms": answer.age_ms,
            "groups": known.groups,
        }

    def group(self, image: MetadataImage, asked: AskedPage) -> tuple[Html, Any]:
        group_id = asked.name
        answer: Answer[GroupStatus | None] = self._questions.ask(
            ("group", group_id), lambda client, _: _look_at(client, image, group_id)
        )
        if answer.known is None:
            said, lacks = said_of(answer), lacking(answer)
            if lacks is None:
                said = element("p", "There is no such group.", class_="lead")
            return unknown_group_page(said, group_id), {} if lacks is None else {"missing": lacks}
        group = answer.known
        page = min(max(1, asked.page), pages_of(max(len(group.members), len(group.partitions))))
        return group_page(said_of(answer), group, page), {
            **{name: getattr(group, name) for name in group.__slots__},
            "missing": lacking(answer),
            "age_ms": answer.age_ms,
            "member_count": len(group.members),
            "partition_count": len(group.partitions),
            "members": rows_of_page(group.members, page),
            "partitions": rows_of_page(group.partitions, page),
        }


def _look_at_all(client: ClusterClient, image: MetadataImage, page: int) -> _Groups:
    """Return a page of groups.

    Raises:
        ResponseTooLargeError: there are too many.
    """
    asked = coordinators(image, CONSUMER_OFFSETS_TOPIC)
    listing = list_groups(client, asked.brokers)
    for failure in listing.failures.values():
        if isinstance(failure, ResponseTooLargeError):
            raise failure
    count = len(listing.groups)
    groups = rows_of_page(by_trouble(listing.groups), min(max(1, page), pages_of(count)))
    of_consumers = [group for group in groups if group.group_type.lower() == CONSUMER_TYPE]
    classic = [group for group in groups if group.group_type.lower() != CONSUMER_TYPE]
    described = describe_groups(
        client,
        {group.group_id: group.coordinator for group in classic},
        {group.group_id: group.coordinator for group in of_consumers},
    )
    committed = committed_offsets(client, {group.group_id: group.coordinator for group in groups})
    extents = _extents(client, image, committed.values())
    return _Groups(
        count,
        summaries(groups, described.groups, committed, extents),
        missing(asked, {**described.failures, **listing.failures}),
    )


def _look_at(client: ClusterClient, image: MetadataImage, group_id: str) -> GroupStatus | None:
    """Return a group; None if it does not exist.

    Raises:
        KafkaError: its coordinator does not answer.
    """
    coordinator = coordinator_of(image, CONSUMER_OFFSETS_TOPIC, group_id)
    if coordinator is None:
        if CONSUMER_OFFSETS_TOPIC not in image.topics.by_name:
            return None
        raise KafkaError(
            ErrorCode.coordinator_not_available, "the partition of its coordinator has no leader"
        )
    of_either_type = {group_id: coordinator}
    described = describe_groups(client, of_either_type, of_either_type)
    description = described.groups.get(group_id)
    if description is None:
        for failure in described.failures.values():
            raise failure
        return None
    offsets = committed_offsets(client, of_either_type).get(group_id)
    assigned = dict.fromkeys(
        partition for member in description.members for partition in member.assignment or ()
    )
    extents = _extents(client, image, (offsets or {}, assigned))
    return group_status(description, coordinator, offsets, extents)


def _extents(
    client: ClusterClient, image: MetadataImage, partitions: Iterable[Iterable[TopicPartition]]
) -> dict[TopicPartition, Extent]:
    leaders = {}
    for each in (each for some in partitions for each in some):
        leader = leader_of(image, each)
        if leader is not None:
            leaders[each] = leader
        if len(leaders) >= MAX_PARTITIONS:
            break
    ends, starts = high_watermarks(client, leaders), log_start_offsets(client, leaders)
    return {each: Extent(end, starts.get(each, 0)) for each, end in ends.items()}
