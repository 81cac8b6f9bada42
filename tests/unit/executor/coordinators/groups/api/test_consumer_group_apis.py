"""The handlers of the consumer protocol: both versions of each API are read and answered.

The machine is real; in place of the runtime stands one that appends to a list (`GroupConversation`).
"""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.consumer_group_heartbeat.v0 import request as heartbeat_v0
from kio.schema.consumer_group_heartbeat.v1 import request as heartbeat_v1

from sparklog.executor.coordinators.groups.api.consumer_group_describe import ConsumerGroupDescribeHandler
from sparklog.executor.coordinators.groups.api.consumer_group_heartbeat import (
    MAX_NAMED_TOPICS,
    ConsumerGroupHeartbeatHandler,
)
from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.acls.machine.authorizer import Authorizer, AuthorizerSettings
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.metadata.features import GROUP_VERSION_FEATURE
from sparklog.node.responses.authorized_operations import GROUP_OPERATIONS, OPERATIONS_OMITTED
from sparklog.node.serving.requests import ANONYMOUS, Deferred, Request
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.encoder import encode_entity
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.coordinators.groups.consumer_conversation import (
    ConsumerConversation,
    id_of,
    partitions_of,
)
from tests.unit.executor.coordinators.groups.group_conversation import GROUP

VERSIONS = (0, 1)


class ConsumerGroupApis(ConsumerConversation):
    """A coordinator of one partition, and the handlers before it."""

    partitions = (0,)

    def __init__(self, group_version: int = 1) -> None:
        super().__init__()
        self.image = replace(self.image, features={GROUP_VERSION_FEATURE: group_version})
        self.error: ErrorCode | None = None
        """What the runtime refuses everything with."""
        self.access: Any = None
        """What whoever asks may do."""
        self.handlers: dict[ApiKey, Any] = {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: ConsumerGroupHeartbeatHandler(self, lambda: self.image).handle,
            ApiKey.CONSUMER_GROUP_DESCRIBE: ConsumerGroupDescribeHandler(self, lambda: self.image).handle,
        }

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

    def submit_to(self, partition: int, decide: Any, refuse: Any, *event: Any) -> Deferred:
        raise AssertionError("these APIs name a group")

    def _answer(self, token: Any, response: Any) -> None:
        if isinstance(token, Deferred):
            token.complete(response)
        else:
            super()._answer(token, response)

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request of this version; return the answer as it is sent."""
        request = Request(
            api_key,
            version,
            0,
            "client",
            request_type(api_key, version)(**fields),
            memoryview(b""),
            SimpleNamespace(peer="127.0.0.1:5"),  # type: ignore[arg-type]
            "CLIENT",
        )
        request.access = self.access
        answer = self.handlers[api_key](request)
        if not isinstance(answer, Deferred) and not hasattr(answer, "__version__"):
            answer = in_one_go(answer)
        if isinstance(answer, Deferred):
            answers: list[Any] = []
            answer.bind(answers.append)
            (answer,) = answers
        answer = downgrade(answer, version)
        encode_entity(answer)
        return answer

    def heartbeat_request(self, version: int = 1, **fields: Any) -> Any:
        fields = {"group_id": GROUP, "member_id": "a", "member_epoch": 0, "topic_partitions": (), **fields}
        return self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **fields)

    def describe(self, version: int, *group_ids: str, operations: bool = False) -> Any:
        return self.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            version,
            group_ids=group_ids,
            include_authorized_operations=operations,
        ).groups


def test_versions_are_kafkas() -> None:
    for api_key in (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE):
        assert tuple(CLIENT_VERSIONS[api_key]) == (VERSIONS[0], VERSIONS[-1])


@pytest.mark.parametrize("version", VERSIONS)
def test_heartbeat_each_version_joins_reports_and_leaves(version: int) -> None:
    talk = ConsumerGroupApis()
    entities = (heartbeat_v0, heartbeat_v1)[version]

    joined = talk.heartbeat_request(
        version, subscribed_topic_names=("t",), rebalance_timeout=timedelta(seconds=60), rack_id="r"
    )
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.none, 2)
    assert partitions_of(joined.assignment) == {"t": {0, 1, 2, 3}}
    owned = (entities.TopicPartitions(topic_id=id_of("t"), partitions=(0, 1, 2, 3)),)
    stays = talk.heartbeat_request(version, member_epoch=2, topic_partitions=owned)
    assert (stays.error_code, stays.assignment, stays.heartbeat_interval) == (
        ErrorCode.none,
        None,
        timedelta(seconds=5),
    )
    assert talk.group.members["a"].client_host == "/127.0.0.1"
    left = talk.heartbeat_request(version, member_epoch=-1, topic_partitions=None)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)


def test_heartbeat_version_0_makes_a_member_id_for_who_has_none() -> None:
    talk = ConsumerGroupApis()

    ids = {
        talk.heartbeat_request(
            0, member_id="", subscribed_topic_names=("t",), rebalance_timeout=timedelta(seconds=1)
        ).member_id
        for _ in range(2)
    }

    assert len(ids) == 2
    assert ids == set(talk.group.members)


def test_heartbeat_version_1_subscribes_by_a_regular_expression() -> None:
    talk = ConsumerGroupApis()

    talk.heartbeat_request(subscribed_topic_regex="t+", rebalance_timeout=timedelta(seconds=1))

    assert set(talk.group.resolved) == {"t+"}


def test_heartbeat_that_names_more_topics_than_a_member_may_is_refused() -> None:
    """Half a second of the loop, for whoever likes to ask for it."""
    talk = ConsumerGroupApis()
    names = tuple(f"topic-{number}" for number in range(MAX_NAMED_TOPICS + 1))

    refused = talk.heartbeat_request(subscribed_topic_names=names, rebalance_timeout=timedelta(seconds=1))

    assert refused.error_code is ErrorCode.invalid_request
    assert "10001 topics" in refused.error_message
    taken = talk.heartbeat_request(subscribed_topic_names=names[1:], rebalance_timeout=timedelta(seconds=1))
    assert taken.error_code is ErrorCode.none


def test_heartbeat_is_refused_with_what_the_runtime_says() -> None:
    """A coordinator that moved or loads: the client asks for another, or again."""
    talk = ConsumerGroupApis()
    talk.error = ErrorCode.coordinator_load_in_progress

    assert talk.heartbeat_request(member_epoch=1).error_code is ErrorCode.coordinator_load_in_progress


def test_cluster_without_the_feature_refuses_both() -> None:
    """As a broker of Kafka does before group.version is 1."""
    talk = ConsumerGroupApis(group_version=0)

    assert talk.heartbeat_request(member_epoch=1).error_code is ErrorCode.unsupported_version
    assert [group.error_code for group in talk.describe(1, "a", "b")] == [ErrorCode.unsupported_version] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_describe_each_version_tells_of_groups_and_of_why_not(version: int) -> None:
    talk = ConsumerGroupApis()
    talk.enter("a")

    described, missing, nameless = talk.describe(version, GROUP, "missing", "", operations=True)

    assert (described.error_code, described.group_state, described.group_epoch) == (
        ErrorCode.none,
        "Stable",
        2,
    )
    assert [member.member_id for member in described.members] == ["a"]
    assert described.authorized_operations == GROUP_OPERATIONS
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.group_id_not_found,
        "Group missing not found.",
    )
    assert nameless.error_code is ErrorCode.invalid_group_id
    assert talk.describe(version, GROUP)[0].authorized_operations == OPERATIONS_OMITTED


def test_describe_is_refused_with_what_the_runtime_says() -> None:
    talk = ConsumerGroupApis()
    talk.error = ErrorCode.not_coordinator

    (group,) = talk.describe(1, GROUP)

    assert (group.group_id, group.error_code) == (GROUP, ErrorCode.not_coordinator)


def test_regular_expression_finds_only_topics_that_its_member_may_describe() -> None:
    """By `.*` everybody could find out what there is."""
    apis = ConsumerGroupApis()
    apis.change_topics({"seen": 1, "hidden": 1})
    apis.image = replace(apis.image, features={GROUP_VERSION_FEATURE: 1})
    acl = Acl(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        "seen",
        "User:*",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    decisions = Authorizer([acl], AuthorizerSettings()).decisions(ANONYMOUS, "127.0.0.1")
    apis.access = Access(decisions, apis.image, 0, lambda *_: None)

    answer = apis.heartbeat_request(
        subscribed_topic_names=None,
        subscribed_topic_regex=".*",
        rebalance_timeout=timedelta(seconds=60),
        instance_id=None,
        rack_id=None,
        server_assignor=None,
    )

    assert answer.error_code is ErrorCode.none
    assert apis.group.resolved[".*"].topics == {"seen"}
