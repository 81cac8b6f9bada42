"""Two clusters of the same set-up, ours and Apache Kafka's, that are asked the same."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kio.schema.api_versions.v0.request import ApiVersionsRequest

from sparklog.node.acls.acl import Acl, AclOperation, AclPermissionType, AclResourceType, PatternType
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.security.sasl.password_login import PasswordLogin
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.cluster import LocalCluster
from tests.compat.authorization.questions import (
    CHANGING_GROUPS,
    CHANGING_TOPICS,
    GROUPS,
    LIVE,
    LIVE_TOPICS,
    TOPICS,
)
from tests.compat.authorization.stated import Asked, request_of, stated, told
from tests.compat.kafka_node import kafka_node

PROTOCOL: Final = "SASL_PLAINTEXT"
USERS: Final = ("admin", "ann", "bob")
TIMEOUT_S: Final = 30.0
_UNANSWERED: Final = {"unanswered": True}
_CLOSED: Final = {"closed": True}
_CREATED_SOON: Final = frozenset({"unknown_topic_or_partition", "leader_not_available"})
_FOR_EVER_MS: Final = "3600000"

Address = tuple[str, int]


def settings(*, open_to_all: bool) -> dict[str, str]:
    """Return what both are configured with."""
    users = " ".join(f'user_{user}="{user}"' for user in USERS)
    return {
        f"listener.name.{PROTOCOL.lower()}.sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{PROTOCOL.lower()}.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="admin" password="admin" {users};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": str(open_to_all).lower(),
        "group.initial.rebalance.delay.ms": "0",
        "group.consumer.session.timeout.ms": _FOR_EVER_MS,
        "group.consumer.max.session.timeout.ms": _FOR_EVER_MS,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }


class Side:
    """One cluster, with a connection for each of its users."""

    def __init__(self, name: str, address: Address, controller_has: Callable[[Set[Acl]], bool]) -> None:
        """`controller_has` says whether the controller decides by these ACLs."""
        self.name = name
        self._address = address
        self._controller_has = controller_has
        self._channels: dict[str, BlockingChannel] = {}
        self._topic_ids: dict[str, UUID] = {}

    def close(self) -> None:
        """Leave."""
        for channel in self._channels.values():
            channel.close()

    def answer(self, asked: Asked) -> Any:
        """Return what is said to a question."""
        channel = self._channel(asked.user)
        request = request_of(asked, self._topic_ids)
        try:
            if getattr(request, "acks", None) == 0:
                channel.send(request, expect_response=False)
                channel.request(ApiVersionsRequest())
                return _UNANSWERED
            return told(channel.request(request), self._topic_ids)
        except KafkaError:
            channel.close()
            return _CLOSED

    def set_acls(self, acls: Set[Acl]) -> None:
        """Return when whoever decides here does so by these ACLs."""
        everything = {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        }
        self._ask(ApiKey.DELETE_ACLS, 3, filters=[everything])
        if acls:
            creations = [
                {
                    "resource_type": acl.resource_type,
                    "resource_name": acl.resource_name,
                    "resource_pattern_type": acl.pattern_type,
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permission_type": acl.permission_type,
                }
                for acl in acls
            ]
            created = self._ask(ApiKey.CREATE_ACLS, 3, creations=creations)
            assert all(result.error_code is ErrorCode.none for result in created.results), created
        deadline_s = time.monotonic() + TIMEOUT_S
        while acls_of(self._channel("admin")) != acls or not self._controller_has(acls):
            assert time.monotonic() < deadline_s, f"{self.name} does not have the ACLs"
            time.sleep(0.002)

    def prepare(self) -> None:
        """Make topics, groups, and what goes on; connect all users."""
        for user in USERS:
            self._channel(user)
        self.restore_topics()
        for key_type, key in ((0, LIVE), (1, LIVE)):
            self._until_done(ApiKey.FIND_COORDINATOR, 6, key_type=key_type, coordinator_keys=[key])
        for group_id in GROUPS:
            self._commit(group_id)
        member = {"group_id": LIVE, "member_id": "member", "rebalance_timeout": 30_000}
        joining = {"subscribed_topic_names": list(LIVE_TOPICS), "topic_partitions": []}
        joined = self._until_done(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **member, **joining, member_epoch=0)
        owned = [{"topic_id": name, "partitions": [0]} for name in LIVE_TOPICS]
        self._ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            **member,
            member_epoch=joined.member_epoch,
            topic_partitions=owned,
        )
        started = self._until_done(
            ApiKey.INIT_PRODUCER_ID,
            4,
            transactional_id=LIVE,
            transaction_timeout=900_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        self._until_done(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=LIVE,
            v3_and_below_producer_id=started.producer_id,
            v3_and_below_producer_epoch=started.producer_epoch,
            v3_and_below_topics=[{"name": name, "partitions": [0]} for name in LIVE_TOPICS],
        )

    def _commit(self, group_id: str) -> None:
        offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        topics = [{"name": name, "partitions": [offset]} for name in TOPICS]
        self._until_done(
            ApiKey.OFFSET_COMMIT,
            9,
            group_id=group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=topics,
        )

    def restore_groups(self) -> None:
        """Have every group its offsets, and none that is of nobody."""
        self._ask(ApiKey.DELETE_GROUPS, 2, groups_names=["zz"])
        for group_id in GROUPS:
            self._commit(group_id)

    def restore(self, asked: Asked, answer: Any) -> None:
        """Have again what a question may have changed, of what is there before each."""
        if asked.api in CHANGING_GROUPS:
            self.restore_groups()
        if asked.api not in CHANGING_TOPICS:
            return
        rows = [] if "closed" in answer else answer.get("topics", answer.get("responses", []))
        done = {row["name"] or row.get("topic_id") for row in rows if row["error_code"] == "none"}
        if asked.api == ApiKey.CREATE_TOPICS.name:
            self.restore_topics(coming=set() if asked.fields.get("validate_only") else done)
        elif asked.api == ApiKey.DELETE_TOPICS.name:
            self.restore_topics(going=done)
        elif asked.fields.get("allow_auto_topic_creation", True):
            # They are created when the answer has been given.
            self.restore_topics(coming={row["name"] for row in rows if row["error_code"] in _CREATED_SOON})

    def restore_topics(self, *, coming: Set[str] = frozenset(), going: Set[str] = frozenset()) -> None:
        """Have the topics that a case begins with, and no others, once a change before is there.

        Learns their ids.
        """
        created = False
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            response = self._ask(ApiKey.METADATA, 12, topics=None, allow_auto_topic_creation=False)
            there = {topic.name: topic for topic in response.topics if not topic.is_internal}
            coming, going = coming - there.keys(), going & there.keys()
            extra, missing = sorted(there.keys() - TOPICS), sorted(TOPICS - there.keys())
            if coming or going:
                pass
            elif extra:
                rows = [{"name": name, "topic_id": None} for name in extra]
                self._ask(ApiKey.DELETE_TOPICS, 6, topics=rows, timeout=10_000)
                going = set(extra)
            elif missing:
                rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in missing]
                self._ask(ApiKey.CREATE_TOPICS, 7, topics=rows, timeout=10_000)
                created = True
                coming = set(missing)
            elif all(_has_leaders(topic) for topic in there.values()):
                self._topic_ids = {topic.name: topic.topic_id for topic in response.topics}
                if created:
                    self._until_led()
                return
            assert time.monotonic() < deadline_s, f"{self.name} does not have its topics: {response}"
            time.sleep(0.005)

    def _until_led(self) -> None:
        """Return when partitions that the metadata has are served, too."""
        latest = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": name, "partitions": [latest]} for name in TOPICS]
        self._until_done(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)

    def _until_done(self, api_key: ApiKey, version: int, **given: Any) -> Any:
        deadline_s = time.monotonic() + TIMEOUT_S
        while errors_of(response := self._ask(api_key, version, **given)):
            assert time.monotonic() < deadline_s, response
            time.sleep(0.05)
        return response

    def _ask(self, api_key: ApiKey, version: int, **given: Any) -> Any:
        asked = Asked("admin", api_key.name, version, stated(api_key, version, given))
        return self._channel("admin").request(request_of(asked, self._topic_ids))

    def _channel(self, user: str) -> BlockingChannel:
        channel = self._channels.get(user)
        if channel is None or channel.closed:
            channel = self._channels[user] = BlockingChannel(
                *self._address, "side", TIMEOUT_S, login=PasswordLogin("PLAIN", user, user)
            )
        return channel


def errors_of(response: Any) -> list[str]:
    """Return the errors that an answer tells."""
    return [error for error in _errors_in(told(response, {})) if error != ErrorCode.none.name]


def _errors_in(said: Any) -> Iterator[str]:
    if isinstance(said, Mapping):
        for name, value in said.items():
            if name.endswith("error_code"):
                yield value
            else:
                yield from _errors_in(value)
    elif isinstance(said, list):
        for item in said:
            yield from _errors_in(item)


def _has_leaders(topic: Any) -> bool:
    return topic.error_code is ErrorCode.none and all(
        partition.error_code is ErrorCode.none for partition in topic.partitions
    )


def acls_of(channel: BlockingChannel) -> Set[Acl]:
    """Return the ACLs that a cluster tells of."""
    everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    asked = Asked("admin", ApiKey.DESCRIBE_ACLS.name, 3, everything)
    return frozenset(_described(channel.request(request_of(asked, {})).resources))


def _described(resources: Iterable[Any]) -> Iterator[Acl]:
    for resource in resources:
        for acl in resource.acls:
            yield Acl(
                AclResourceType(resource.resource_type),
                PatternType(resource.pattern_type),
                resource.resource_name,
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                AclPermissionType(acl.permission_type),
            )


@contextlib.contextmanager
def sparklog(*, open_to_all: bool) -> Iterator[Side]:
    """Run a cluster of ours."""
    config = {
        "listeners": f"PLAINTEXT://127.0.0.1:0,{PROTOCOL}://127.0.0.1:0",
        **settings(open_to_all=open_to_all),
    }
    with LocalCluster(brokers=1, config=config) as cluster:
        (endpoint,) = (each for each in cluster.image.brokers[0].listeners if each.name == PROTOCOL)
        side = Side(
            "sparklog",
            (endpoint.host, endpoint.port),
            lambda acls: frozenset(cluster.image.acls.values()) == acls,
        )
        with contextlib.closing(side):
            side.prepare()
            yield side


@contextlib.contextmanager
def apache_kafka(directory: Path, *, open_to_all: bool) -> Iterator[Side]:
    """Run a node of Apache Kafka."""
    more = settings(open_to_all=open_to_all) | {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    login = PasswordLogin("PLAIN", "admin", "admin")
    with (
        kafka_node(directory, more, protocol=PROTOCOL, login=login) as node,
        BlockingChannel(*node.controller, "side", TIMEOUT_S) as controller,
    ):
        side = Side("Apache Kafka", node.client, lambda acls: acls_of(controller) == acls)
        with contextlib.closing(side):
            side.prepare()
            yield side
