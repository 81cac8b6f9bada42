"""The handlers of the group coordinator's APIs: every version is read and answered, and what is refused is.

The machine is real; in place of the runtime stands one that appends to a list (`GroupConversation`).
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from sparklog.executor.coordinators.groups.api.delete_groups import DeleteGroupsHandler
from sparklog.executor.coordinators.groups.api.describe_groups import DescribeGroupsHandler
from sparklog.executor.coordinators.groups.api.heartbeat import HeartbeatHandler
from sparklog.executor.coordinators.groups.api.join_group import JoinGroupHandler
from sparklog.executor.coordinators.groups.api.leave_group import LeaveGroupHandler
from sparklog.executor.coordinators.groups.api.list_groups import ListGroupsHandler
from sparklog.executor.coordinators.groups.api.offset_commit import OffsetCommitHandler
from sparklog.executor.coordinators.groups.api.offset_delete import OffsetDeleteHandler
from sparklog.executor.coordinators.groups.api.offset_fetch import OffsetFetchHandler
from sparklog.executor.coordinators.groups.api.offset_topics import DECIDED_AT_ONCE
from sparklog.executor.coordinators.groups.api.sync_group import SyncGroupHandler
from sparklog.executor.coordinators.groups.api.txn_offset_commit import TxnOffsetCommitHandler
from sparklog.executor.coordinators.machine.coordinator_machine import CoordinatorResult
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration, TopicImage, TopicsImage
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.encoder import encode_entity
from sparklog.protocol.codec.layout import entity_layout
from sparklog.protocol.codec.steps import in_one_go, turn
from sparklog.protocol.codec.versions import downgrade
from tests.unit.executor.coordinators.groups.group_conversation import GROUP, GroupConversation

TOPIC_ID = UUID(int=7)
PARTITION = PartitionRegistration(
    replicas=(1,), directories=(None,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0
)
TOPIC = TopicImage("topic", TOPIC_ID, {0: PARTITION, 1: PARTITION})
IMAGE = MetadataImage(topics=TopicsImage({"topic": TOPIC}, {TOPIC_ID: TOPIC}))


async def verified(group_id: str, transaction: object) -> Any:
    """Have every transaction be known to its coordinator."""
    await turn()
    return None, ErrorCode.none


class Groups(GroupConversation):
    """A coordinator of one partition, and the handlers before it."""

    partitions = (0,)

    def __init__(self, **keys: str) -> None:
        self.batch_sizes: list[int] = []
        super().__init__(IMAGE, **keys)
        self.has_all_coordinators = True
        self.error: ErrorCode | None = None
        """What the runtime refuses everything with."""
        self.waiting: dict[Deferred, Deferred] = {}
        image = lambda: self.image  # noqa: E731
        self.handlers: dict[ApiKey, Callable[[Any], Any]] = {
            ApiKey.JOIN_GROUP: JoinGroupHandler(self).handle,
            ApiKey.SYNC_GROUP: SyncGroupHandler(self).handle,
            ApiKey.HEARTBEAT: HeartbeatHandler(self).handle,
            ApiKey.LEAVE_GROUP: LeaveGroupHandler(self).handle,
            ApiKey.OFFSET_COMMIT: OffsetCommitHandler(self, image, max_batch_bytes=1_000_000).handle,
            ApiKey.TXN_OFFSET_COMMIT: TxnOffsetCommitHandler(
                self, image, verified, max_batch_bytes=1_000_000
            ).handle,
            ApiKey.OFFSET_FETCH: OffsetFetchHandler(self, image).handle,
            ApiKey.OFFSET_DELETE: OffsetDeleteHandler(self, image).handle,
            ApiKey.DESCRIBE_GROUPS: DescribeGroupsHandler(self).handle,
            ApiKey.LIST_GROUPS: ListGroupsHandler(self).handle,
            ApiKey.DELETE_GROUPS: DeleteGroupsHandler(self).handle,
        }

    def carry_out(self, decisions: Iterable[CoordinatorResult]) -> None:
        super().carry_out(map(self._noted, decisions))

    def _noted(self, decision: CoordinatorResult) -> CoordinatorResult:
        if decision.records:
            self.batch_sizes.append(len(decision.records))
        return decision

    def submit(  # type: ignore[override]
        self, key: str, decide: Any, refuse: Any = None, *event: Any, waits_for_others: bool = False
    ) -> Any:
        if refuse is None:  # of a member that the conversation plays itself
            return super().submit(key, decide)  # type: ignore[arg-type]
        deferred = Deferred()
        if self.error is not None:
            deferred.complete(refuse(self.error))
        else:
            super().submit(lambda machine, token, now: decide(machine, *event, token, now), deferred)
        return deferred

    def is_complete(self) -> bool:
        return self.has_all_coordinators

    def submit_to(self, partition: int, decide: Any, refuse: Any, *event: Any) -> Deferred:
        deferred: Deferred = self.submit(str(partition), decide, refuse, *event)
        return deferred

    def _answer(self, token: Any, response: Any) -> None:
        if isinstance(token, Deferred):
            token.complete(response)
        else:
            super()._answer(token, response)

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request of this version, with those of the fields that it has; return the answer."""
        body = entity(request_type(api_key, version), fields)
        request = Request(
            api_key,
            version,
            0,
            "client",
            body,
            memoryview(b""),
            SimpleNamespace(peer="127.0.0.1:5"),  # type: ignore[arg-type]
            "CLIENT",
        )
        answer = self.handlers[api_key](request)
        if not isinstance(answer, Deferred) and not hasattr(answer, "__version__"):
            answer = in_one_go(answer)
        if isinstance(answer, Deferred):
            if not answer.completed:
                return None
            answers: list[Any] = []
            answer.bind(answers.append)
            answer = answers[0]
        answer = downgrade(answer, version)
        encode_entity(answer)
        return answer


def entity(entity_type: type[Any], fields: dict[str, Any]) -> Any:
    """Return an entity with those of the fields that its type has; structs are dictionaries."""
    values = {}
    for field in entity_layout(entity_type).all_fields:
        if field.name not in fields:
            continue
        value = fields[field.name]
        if field.entity_type is not None and value is not None:
            value = tuple(entity(field.entity_type, item) for item in value)
        values[field.name] = value
    return entity_type(**values)


def versions(api_key: ApiKey) -> range:
    lowest, highest = CLIENT_VERSIONS[api_key]
    return range(lowest, highest + 1)


def of_all_versions(*api_keys: ApiKey) -> Any:
    return pytest.mark.parametrize(
        ("api_key", "version"),
        [(api_key, version) for api_key in api_keys for version in versions(api_key)],
        ids=lambda value: value.name if isinstance(value, ApiKey) else f"v{value}",
    )


def topics(*partitions: int, name: str = "topic", topic_id: UUID = TOPIC_ID, **row: Any) -> list[Any]:
    rows = [
        {"partition_index": number, "committed_offset": 5, "committed_metadata": "m", **row}
        for number in partitions
    ]
    return [{"name": name, "topic_id": topic_id, "partitions": rows, "partition_indexes": partitions}]


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_member_of_any_version_joins_syncs_beats_and_leaves(version: int) -> None:
    """Old clients have fewer fields, and mean the same."""
    groups = Groups()
    join = {
        "group_id": GROUP,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=60),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    answer = groups.ask(ApiKey.JOIN_GROUP, version, **join)
    if version >= 4:
        assert answer.error_code is ErrorCode.member_id_required
        assert groups.ask(ApiKey.JOIN_GROUP, version, **{**join, "member_id": answer.member_id}) is None
    else:
        assert answer is None
    ((member_id, member),) = groups.machine.groups[GROUP].members.items()  # type: ignore[attr-defined]
    assert member_id.startswith("client-")
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.rebalance_timeout_ms == (60_000 if version >= 1 else 10_000)
    groups.pass_time(3_000)
    about = {"group_id": GROUP, "member_id": member_id, "generation_id": 1}
    assignments = [{"member_id": member_id, "assignment": b"all"}]
    protocols = {"protocol_type": "consumer", "protocol_name": "range"}
    sync = groups.ask(ApiKey.SYNC_GROUP, min(version, 5), **about, assignments=assignments, **protocols)
    assert (sync.error_code, sync.assignment) == (ErrorCode.none, b"all")
    beat = groups.ask(ApiKey.HEARTBEAT, min(version, 4), **about)
    assert beat.error_code is ErrorCode.none
    leave_version = min(version, 5)
    members = [{"member_id": "stranger"}, {"member_id": member_id}]
    left = groups.ask(ApiKey.LEAVE_GROUP, leave_version, group_id=GROUP, member_id=member_id, members=members)
    assert left.error_code is ErrorCode.none
    if leave_version >= 3:
        assert [each.error_code for each in left.members] == [ErrorCode.unknown_member_id, ErrorCode.none]
    else:
        again = groups.ask(ApiKey.LEAVE_GROUP, leave_version, group_id=GROUP, member_id=member_id)
        assert again.error_code is ErrorCode.unknown_member_id
    assert groups.machine.groups[GROUP].is_empty


def test_join_that_names_a_protocol_twice_counts_it_once() -> None:
    """Else it would have more votes than members, and a group without a protocol in common."""
    groups = Groups()
    for token in ("first", "second"):
        assert (
            groups.ask(
                ApiKey.JOIN_GROUP,
                3,
                group_id=GROUP,
                session_timeout=timedelta(seconds=10),
                rebalance_timeout=timedelta(seconds=60),
                member_id="",
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": token.encode()}, {"name": "range", "metadata": b""}],
            )
            is None
        )
    groups.pass_time(6_000)
    group = groups.machine.groups[GROUP]
    assert group.state_name == "CompletingRebalance"
    assert {member.metadata("range") for member in group.members.values()} == {b"first", b"second"}  # type: ignore[attr-defined]


def test_sync_that_says_no_protocol_is_refused_from_the_version_on_that_has_them() -> None:
    """KIP-559: the member might otherwise take an assignment of another protocol for its own."""
    groups = Groups()
    about = {"group_id": GROUP, "member_id": "m", "generation_id": 1, "assignments": []}
    refused = groups.ask(ApiKey.SYNC_GROUP, 5, **about)
    assert refused.error_code is ErrorCode.inconsistent_group_protocol


@of_all_versions(ApiKey.OFFSET_COMMIT)
def test_commit_of_any_version_is_read_back_by_any_version(api_key: ApiKey, version: int) -> None:
    """By name or by id, of one group or of several."""
    groups = Groups()
    answer = groups.ask(
        api_key,
        version,
        group_id=GROUP,
        member_id="",
        retention_time=timedelta(milliseconds=-1),
        topics=topics(0, 1, 2, committed_leader_epoch=3),
    )
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    for fetch_version in versions(ApiKey.OFFSET_FETCH):
        for asked in (topics(0), None) if fetch_version >= 2 else (topics(0),):
            group = {"group_id": GROUP, "topics": asked}
            fetched = groups.ask(ApiKey.OFFSET_FETCH, fetch_version, **group, groups=[group])
            told = fetched.groups[0] if fetch_version >= 8 else fetched
            (topic,) = told.topics
            assert topic.partitions[0].committed_offset == 5
            assert topic.partitions[0].metadata == "m"
            assert (topic.topic_id if fetch_version >= 10 else topic.name) in (TOPIC_ID, "topic")


def test_offsets_of_topics_that_do_not_exist_are_refused_by_what_they_were_named() -> None:
    """The error says whether the name or the id is wrong."""
    groups = Groups()
    about = {"group_id": GROUP, "member_id": ""}
    by_name = groups.ask(ApiKey.OFFSET_COMMIT, 9, **about, topics=topics(0, name="no"))
    by_id = groups.ask(ApiKey.OFFSET_COMMIT, 10, **about, topics=topics(0, topic_id=UUID(int=9)))
    assert by_name.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_or_partition
    assert by_id.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id
    assert by_id.topics[0].topic_id == UUID(int=9)
    group = {"group_id": GROUP, "topics": topics(0, topic_id=UUID(int=9))}
    fetched = groups.ask(ApiKey.OFFSET_FETCH, 10, groups=[group]).groups[0]
    assert fetched.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id
    assert groups.records == []


@of_all_versions(ApiKey.TXN_OFFSET_COMMIT)
def test_commit_in_a_transaction_of_any_version_is_unstable_until_it_ends(
    api_key: ApiKey, version: int
) -> None:
    """A reader that asks for stable offsets waits for it."""
    groups = Groups()
    answer = groups.ask(
        api_key,
        version,
        transactional_id="t",
        group_id=GROUP,
        producer_id=1000,
        producer_epoch=0,
        topics=topics(0, 9),
    )
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    fetched = groups.ask(
        ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": GROUP, "topics": topics(0)}], require_stable=True
    )
    assert fetched.groups[0].topics[0].partitions[0].error_code is ErrorCode.unstable_offset_commit


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, -1), (-1, 0), (1, -1)])
def test_commit_in_a_transaction_of_nobody_is_refused(producer_id: int, producer_epoch: int) -> None:
    """Where nothing is verified no coordinator refuses it, and the group's readers would wait for ever."""
    groups = Groups()
    answer = groups.ask(
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        transactional_id="t",
        group_id=GROUP,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topics=topics(0),
    )
    assert answer.topics[0].partitions[0].error_code is ErrorCode.invalid_producer_id_mapping
    assert groups.records == []


def test_fetch_of_many_partitions_and_groups_answers_all_in_order() -> None:
    """They are looked up some at a time."""
    many = dict.fromkeys(range(2500), PARTITION)
    topic = TopicImage("topic", TOPIC_ID, many)
    groups = Groups()
    groups.image = MetadataImage(topics=TopicsImage({"topic": topic}, {TOPIC_ID: topic}))
    groups.ask(ApiKey.OFFSET_COMMIT, 9, group_id=GROUP, member_id="", topics=topics(*range(0, 2_500, 2)))
    asked = [
        {"group_id": GROUP, "topics": topics(*range(2_500))},
        {"group_id": "none", "topics": topics(0)},
        {"group_id": GROUP, "topics": None},
    ]
    first, none, all_there = groups.ask(ApiKey.OFFSET_FETCH, 9, groups=asked).groups
    assert [row.partition_index for row in first.topics[0].partitions] == list(range(2_500))
    assert {row.committed_offset for row in first.topics[0].partitions[1::2]} == {-1}
    assert none.topics[0].partitions[0].committed_offset == -1
    assert [row.partition_index for row in all_there.topics[0].partitions] == list(range(0, 2_500, 2))


@pytest.mark.parametrize(
    ("api_key", "fields"),
    [
        (ApiKey.OFFSET_COMMIT, {}),
        (ApiKey.TXN_OFFSET_COMMIT, {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0}),
    ],
)
def test_commit_of_many_partitions_is_decided_some_at_a_time_and_answered_in_order(
    api_key: ApiKey, fields: dict[str, Any]
) -> None:
    """A batch of 25,000 would keep a broker's loop for half a second, and its heartbeats with it."""
    groups = Groups()
    ids = {"topic": TOPIC_ID, "other": uuid4()}
    known = dict.fromkeys(range(900), PARTITION)
    images = {name: TopicImage(name, ids[name], known) for name in ids}
    groups.image = MetadataImage(
        topics=TopicsImage(images, {each.topic_id: each for each in images.values()})
    )
    (of_topic,) = topics(*range(1_000))
    asked = (of_topic, {**of_topic, "name": "none"}, {**of_topic, "name": "other"})
    answer = groups.ask(api_key, 5, group_id=GROUP, member_id="", generation_id=-1, topics=asked, **fields)
    unknown = ErrorCode.unknown_topic_or_partition
    assert [topic.name for topic in answer.topics] == ["topic", "none", "other"]
    for topic, count in zip(answer.topics, (900, 0, 900), strict=True):
        assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
            (number, ErrorCode.none if number < count else unknown) for number in range(1_000)
        ]
    assert groups.batch_sizes == [DECIDED_AT_ONCE] * 3 + [300]


def test_commit_that_no_batch_can_hold_is_refused_before_it_is_built() -> None:
    """It would keep everybody else waiting for what cannot be written."""
    groups = Groups()
    partitions = dict.fromkeys(range(30000), PARTITION)
    topic = TopicImage("topic", TOPIC_ID, partitions)
    groups.image = MetadataImage(topics=TopicsImage({"topic": topic}, {TOPIC_ID: topic}))
    answer = groups.ask(ApiKey.OFFSET_COMMIT, 9, group_id=GROUP, member_id="", topics=topics(*range(30_000)))
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.unknown_server_error}
    assert groups.records == []


@of_all_versions(ApiKey.DESCRIBE_GROUPS)
def test_groups_are_described_in_any_version(api_key: ApiKey, version: int) -> None:
    """What does not exist is dead, and an error where clients know it (KIP-1043)."""
    groups = Groups()
    _, (member_id,) = groups.settle("a")
    told, none = groups.ask(
        api_key, version, groups=[GROUP, "none"], include_authorized_operations=True
    ).groups
    assert (told.group_state, told.protocol_type, told.protocol_data) == ("Stable", "consumer", "range")
    assert [member.member_id for member in told.members] == [member_id]
    assert told.members[0].member_assignment == f"for {member_id}".encode()
    assert none.group_state == "Dead"
    assert none.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)


@of_all_versions(ApiKey.LIST_GROUPS)
def test_groups_are_not_listed_while_a_partition_has_no_coordinator(api_key: ApiKey, version: int) -> None:
    """Tools delete what is not listed, and a list without an error is taken for the whole one."""
    groups = Groups()
    groups.settle("a")
    groups.has_all_coordinators = False
    response = groups.ask(api_key, version, states_filter=[], types_filter=[])
    assert (response.error_code, response.groups) == (ErrorCode.coordinator_not_available, ())


@of_all_versions(ApiKey.LIST_GROUPS)
def test_groups_are_listed_in_any_version(api_key: ApiKey, version: int) -> None:
    """Those of nothing but offsets too."""
    groups = Groups()
    groups.settle("a")
    groups.commit("c", 1, group_id="simple")
    listed = groups.ask(api_key, version, states_filter=[], types_filter=[]).groups
    assert {row.group_id: row.protocol_type for row in listed} == {GROUP: "consumer", "simple": ""}


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (["stable"], [], {GROUP}),
        ([" EMPTY "], [], {"simple"}),
        ([], ["Classic"], {GROUP, "simple"}),
        ([], ["consumer"], set()),
        ([], ["share", "streams"], set()),
        ([], ["nonsense"], set()),
        (["dead"], ["classic"], set()),
    ],
)
def test_groups_are_listed_by_state_and_type(states: list[str], types: list[str], found: set[str]) -> None:
    """KIP-518, KIP-848; without regard to case."""
    groups = Groups()
    groups.settle("a")
    groups.commit("c", 1, group_id="simple")
    listed = groups.ask(ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types).groups
    assert {row.group_id for row in listed} == found


@of_all_versions(ApiKey.DELETE_GROUPS)
def test_groups_are_deleted_in_any_version(api_key: ApiKey, version: int) -> None:
    """Each has an answer of its own, those named twice one."""
    groups = Groups()
    groups.settle("a")
    for partition in range(2_500):
        groups.commit(partition, 1, group_id="simple", partition=partition)
    results = groups.ask(api_key, version, groups_names=[GROUP, "simple", "simple", "none"]).results
    assert {row.group_id: row.error_code for row in results} == {
        GROUP: ErrorCode.non_empty_group,
        "simple": ErrorCode.none,
        "none": ErrorCode.group_id_not_found,
    }
    assert set(groups.machine.groups) == {GROUP}


def test_offsets_are_deleted_and_what_is_not_there_is_said() -> None:
    """Per partition."""
    groups = Groups()
    groups.commit("c", 5)
    answer = groups.ask(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=topics(0, 9))
    assert {row.partition_index: row.error_code for row in answer.topics[0].partitions} == {
        0: ErrorCode.none,
        9: ErrorCode.unknown_topic_or_partition,
    }
    assert groups.fetch() is None
    missing = groups.ask(ApiKey.OFFSET_DELETE, 0, group_id="none", topics=topics(0))
    assert (missing.error_code, missing.topics) == (ErrorCode.group_id_not_found, ())


def test_offsets_of_many_partitions_are_deleted_some_at_a_time_and_each_once() -> None:
    """In one go a request of a megabyte held the broker for seconds, and its batch could not be written."""
    groups = Groups()
    topic = TopicImage("topic", TOPIC_ID, dict.fromkeys(range(2_500), PARTITION))
    groups.image = MetadataImage(topics=TopicsImage({"topic": topic}, {TOPIC_ID: topic}))
    for partition in range(2_500):
        groups.commit(partition, 5, partition=partition)
    sizes: list[int] = []
    carry_out = groups.carry_out

    def noting(decisions: Any) -> None:
        for decision in decisions:
            sizes.append(len(decision.records))
            carry_out((decision,))

    groups.carry_out = noting  # type: ignore[method-assign]
    asked = topics(*range(2_500), *(0,) * 5_000)
    answer = groups.ask(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=asked)
    assert [row.partition_index for row in answer.topics[0].partitions] == [*range(2_500)]
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.none}
    assert [size for size in sizes if size] == [1_000, 1_000, 500]
    assert groups.fetch(2_499) is None


@pytest.mark.parametrize("error_code", [ErrorCode.not_coordinator, ErrorCode.coordinator_load_in_progress])
def test_who_asks_a_broker_that_does_not_coordinate_is_told(error_code: ErrorCode) -> None:
    """In every place where Kafka's clients look for it."""
    groups = Groups()
    groups.error = error_code
    about = {"group_id": GROUP, "member_id": "m", "generation_id": 1}
    commit = groups.ask(ApiKey.OFFSET_COMMIT, 9, **about, topics=topics(0))
    assert commit.topics[0].partitions[0].error_code is error_code
    one = groups.ask(ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=topics(0))
    oldest = groups.ask(ApiKey.OFFSET_FETCH, 1, group_id=GROUP, topics=topics(0))
    several = groups.ask(ApiKey.OFFSET_FETCH, 9, groups=[{"group_id": GROUP, "topics": None}])
    assert one.error_code is several.groups[0].error_code is error_code
    assert oldest.topics[0].partitions[0].error_code is error_code
    described = groups.ask(ApiKey.DESCRIBE_GROUPS, 2, groups=[GROUP])
    assert described.groups[0].error_code is error_code
    assert groups.ask(ApiKey.DELETE_GROUPS, 2, groups_names=[GROUP]).results[0].error_code is error_code
    listed = groups.ask(ApiKey.LIST_GROUPS, 5, states_filter=[], types_filter=[])
    is_loading = error_code is ErrorCode.coordinator_load_in_progress
    assert listed.error_code is (error_code if is_loading else ErrorCode.none)
    beat = groups.ask(ApiKey.HEARTBEAT, 4, **about)
    assert beat.error_code is (ErrorCode.none if is_loading else error_code)
    txn = {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "topics": topics(0)}
    old = groups.ask(ApiKey.TXN_OFFSET_COMMIT, 1, group_id=GROUP, **txn)
    assert old.topics[0].partitions[0].error_code is (
        ErrorCode.coordinator_not_available if is_loading else error_code
    )


@pytest.mark.parametrize(
    "api_key",
    [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.OFFSET_DELETE],
)
def test_group_without_a_name_is_none(api_key: ApiKey) -> None:
    """Members of it could not be told from strangers."""
    answer = Groups().ask(
        api_key,
        CLIENT_VERSIONS[api_key].max_version,
        group_id="",
        member_id="",
        generation_id=1,
        session_timeout=timedelta(seconds=10),
        protocol_type="consumer",
        protocols=[],
        assignments=[],
        members=[],
        topics=[],
    )
    assert answer.error_code is ErrorCode.invalid_group_id
