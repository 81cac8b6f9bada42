"""What those are told who may do a part of what they ask for, or see a part of what there is."""

from datetime import timedelta
from typing import Any, Final

import pytest
from kio.schema.consumer_group_describe.v1 import request as describe_request
from kio.schema.consumer_group_describe.v1 import response as describe_response

from sparklog.node.acls.access import Access
from sparklog.node.acls.acl import AclOperation, AclResourceType
from sparklog.node.acls.machine.authorizer import Authorizer, AuthorizerSettings
from sparklog.node.apis.listeners import listener_guards
from sparklog.node.apis.row import Side
from sparklog.node.authorization.guards.guard import filled, item_type
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.schemas import ResourceType
from sparklog.node.responses.describe_topic_partitions import describe_topic_partitions_response
from sparklog.node.serving.requests import ANONYMOUS, NO_RESPONSE, Deferred, Request, Throttled
from sparklog.node.serving.turns import response_of
from sparklog.protocol.codec.apis import ApiKey, request_type, response_type
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.authorization.guards.guarding import (
    HOST,
    IMAGE,
    TOPIC_IDS,
    Guarding,
    Permission,
    on_cluster,
)

BROKER: Final = listener_guards(Side.BROKER, BrokerConfig())
CONTROLLER: Final = listener_guards(Side.CONTROLLER, BrokerConfig())
NONE: Final = ErrorCode.none
FAILED: Final = ErrorCode.topic_authorization_failed

READ: Final = AclOperation.READ
WRITE: Final = AclOperation.WRITE
CREATE: Final = AclOperation.CREATE
DELETE: Final = AclOperation.DELETE
DESCRIBE: Final = AclOperation.DESCRIBE
DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
TOPIC: Final = AclResourceType.TOPIC
GROUP: Final = AclResourceType.GROUP
TRANSACTION: Final = AclResourceType.TRANSACTIONAL_ID


def topics_body(api_key: ApiKey, version: int, field: str, names: tuple[str, ...], **rest: Any) -> Any:
    """Return a request about topics."""
    body_type = request_type(api_key, version)
    topic_type = item_type(body_type, field)
    return filled(body_type, **{field: tuple(filled(topic_type, name=name) for name in names)}, **rest)


def with_topics(request: Request) -> Any:
    """Answer Metadata as brokers do, with the topics that are asked for."""
    known = response_type(ApiKey.METADATA, 13)
    topic_type = item_type(known, "topics")
    topics = tuple(
        filled(topic_type, name=topic.name, topic_id=topic.topic_id, topic_authorized_operations=-1)
        for topic in request.body.topics
    )
    return filled(known, topics=topics)


def produced(request: Request) -> Any:
    """Answer a Produce for each topic."""
    response = response_type(ApiKey.PRODUCE, request.api_version)
    topic_type = item_type(response, "responses")
    return filled(
        response, responses=tuple(filled(topic_type, name=each.name) for each in request.body.topic_data)
    )


def answered_later(request: Request) -> Deferred:
    """Answer when the replicas have it."""
    deferred = Deferred()
    deferred.complete(produced(request))
    return deferred


async def answered_in_a_task(request: Request) -> Any:
    """Answer in a task."""
    return produced(request)


@pytest.mark.parametrize("respond", [produced, answered_later, answered_in_a_task])
def test_produce_to_some_that_are_denied_appends_the_others(respond: Any) -> None:
    """A batch for a topic that may not be written must not take the others with it, however they answer."""
    guarding = Guarding(BROKER[ApiKey.PRODUCE], [(WRITE, TOPIC, "mine")])
    body_type = request_type(ApiKey.PRODUCE, 9)
    topic_type = item_type(body_type, "topic_data")
    data = filled(item_type(topic_type, "partition_data"), index=3)
    topics = tuple(filled(topic_type, name=name, partition_data=(data,)) for name in ("mine", "theirs"))
    body = filled(body_type, acks=-1, topic_data=topics, timeout=timedelta(seconds=1))
    answer = guarding.ask(ApiKey.PRODUCE, 9, body, respond)
    assert [topic.name for topic in guarding.handled[0].topic_data] == ["mine"]
    mine, theirs = answer.responses
    assert (mine.name, theirs.name) == ("mine", "theirs")
    (row,) = theirs.partition_responses
    assert (row.index, row.error_code, row.base_offset) == (3, FAILED, -1)
    assert guarding.denied == [(WRITE, TOPIC, "theirs")]


def test_produce_without_an_answer_that_is_denied_ends_its_connection() -> None:
    """With acks=0 nothing else tells the producer that its records go nowhere."""
    guarding = Guarding(BROKER[ApiKey.PRODUCE], [])
    body = topics_body(ApiKey.PRODUCE, 9, "topic_data", ("theirs",), acks=0)
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        guarding.ask(ApiKey.PRODUCE, 9, body, lambda request: NO_RESPONSE)


def test_produce_of_a_transaction_that_it_does_not_name_is_refused_as_a_whole() -> None:
    """Whoever names none is asked for none, and could write in the name of any."""
    guarding = Guarding(BROKER[ApiKey.PRODUCE], [(WRITE, TOPIC, "mine")])
    body_type = request_type(ApiKey.PRODUCE, 9)
    topic_type = item_type(body_type, "topic_data")
    transactional = bytes(22) + b"\x10" + bytes(40)
    data = filled(item_type(topic_type, "partition_data"), index=3, records=transactional)
    topics = tuple(filled(topic_type, name=name, partition_data=(data,)) for name in ("mine", "theirs"))
    body = filled(body_type, acks=-1, topic_data=topics, timeout=timedelta(seconds=1))
    answer = guarding.ask(ApiKey.PRODUCE, 9, body, produced)
    assert guarding.handled == []
    errors = {row.error_code for topic in answer.responses for row in topic.partition_responses}
    assert errors == {ErrorCode.transactional_id_authorization_failed}


def test_offsets_of_a_group_that_is_not_there_are_not_deleted_topic_by_topic() -> None:
    """Kafka says of the whole what is wrong with the group, and of no topic that it is denied."""
    guarding = Guarding(BROKER[ApiKey.OFFSET_DELETE], [(DELETE, GROUP, "group")])
    body = topics_body(ApiKey.OFFSET_DELETE, 0, "topics", ("theirs",), group_id="group")
    gone = filled(response_type(ApiKey.OFFSET_DELETE, 0), error_code=ErrorCode.group_id_not_found)
    assert guarding.ask(ApiKey.OFFSET_DELETE, 0, body, lambda request: gone) == gone


def test_metadata_of_all_topics_leaves_out_what_may_not_be_described() -> None:
    """And nothing of it goes to the audit log: nobody has asked for it."""
    guarding = Guarding(BROKER[ApiKey.METADATA], [(READ, TOPIC, "mine")])
    body = filled(request_type(ApiKey.METADATA, 12), topics=None, include_topic_authorized_operations=True)
    answer = guarding.ask(ApiKey.METADATA, 12, body, with_topics)
    told = [(topic.name, topic.topic_authorized_operations) for topic in answer.topics]
    assert told == [("mine", 1 << READ | 1 << DESCRIBE)]
    assert guarding.denied == []


def test_metadata_of_all_topics_for_who_may_see_all_is_the_answer_for_everybody() -> None:
    """It is kept as bytes, and made once for thousands of clients."""
    guarding = Guarding(BROKER[ApiKey.METADATA], [(DESCRIBE, TOPIC, "*")])
    body = filled(request_type(ApiKey.METADATA, 12), topics=None)
    guarding.ask(ApiKey.METADATA, 12, body)
    assert guarding.handled == [body]


def test_metadata_says_the_same_of_a_hidden_topic_as_of_one_that_is_not_there() -> None:
    """Whether a topic exists is not for everybody to know; an id that is unknown may be said to be."""
    guarding = Guarding(BROKER[ApiKey.METADATA], [(DESCRIBE, TOPIC, "mine")])
    named = filled(
        request_type(ApiKey.METADATA, 12),
        topics=tuple(
            filled(item_type(request_type(ApiKey.METADATA, 12), "topics"), name=name)
            for name in ("mine", "theirs", "nowhere")
        ),
        allow_auto_topic_creation=True,
    )
    answer = guarding.ask(ApiKey.METADATA, 12, named, with_topics)
    told = [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics]
    assert told == [("mine", None, NONE), ("theirs", None, FAILED), ("nowhere", None, FAILED)]


def test_metadata_of_old_versions_tells_what_may_be_done_to_the_cluster() -> None:
    """Versions 8 to 10 have it here; who may not describe the cluster may do nothing that he is told of."""
    body = filled(request_type(ApiKey.METADATA, 9), topics=(), include_cluster_authorized_operations=True)
    for permissions, told in (([], 0), ([on_cluster(AclOperation.ALTER)], 1 << 7 | 1 << 8)):
        answer = Guarding(BROKER[ApiKey.METADATA], permissions).ask(ApiKey.METADATA, 9, body, with_topics)
        assert answer.cluster_authorized_operations == told


def test_describe_cluster_tells_operations_only_to_who_asks() -> None:
    """The brokers are told to everybody."""
    permissions = [on_cluster(DESCRIBE), on_cluster(CREATE)]
    guarding = Guarding(BROKER[ApiKey.DESCRIBE_CLUSTER], permissions)
    for asks, told in ((True, 1 << CREATE | 1 << DESCRIBE), (False, -(2**31))):
        body = filled(request_type(ApiKey.DESCRIBE_CLUSTER, 1), include_cluster_authorized_operations=asks)
        answer = guarding.ask(ApiKey.DESCRIBE_CLUSTER, 1, body)
        assert answer.cluster_authorized_operations == told


def listed(api_key: ApiKey, field: str, name_field: str) -> Any:
    """Answer with two rows."""

    def respond(request: Request) -> Any:
        known = response_type(api_key, request.api_version)
        rows = tuple(filled(item_type(known, field), **{name_field: name}) for name in ("mine", "theirs"))
        return filled(known, **{field: rows})

    return respond


@pytest.mark.parametrize(
    ("api_key", "field", "name_field", "permissions", "seen"),
    [
        (ApiKey.LIST_GROUPS, "groups", "group_id", [], []),
        (ApiKey.LIST_GROUPS, "groups", "group_id", [(READ, GROUP, "mine")], ["mine"]),
        (ApiKey.LIST_GROUPS, "groups", "group_id", [on_cluster(DESCRIBE)], ["mine", "theirs"]),
        (ApiKey.LIST_TRANSACTIONS, "transaction_states", "transactional_id", [], []),
        (
            ApiKey.LIST_TRANSACTIONS,
            "transaction_states",
            "transactional_id",
            [(WRITE, TRANSACTION, "theirs")],
            ["theirs"],
        ),
    ],
)
def test_list_tells_of_what_may_be_described(
    api_key: ApiKey, field: str, name_field: str, permissions: list[Permission], seen: list[str]
) -> None:
    """Names tell much, even if nothing can be done to what they name; to have a list is no attempt at one."""
    body = filled(request_type(api_key, 1))
    guarding = Guarding(BROKER[api_key], permissions)
    answer = guarding.ask(api_key, 1, body, listed(api_key, field, name_field))
    assert [getattr(row, name_field) for row in getattr(answer, field)] == seen
    assert guarding.denied == []


@pytest.mark.parametrize(("names", "hidden"), [((), []), (("theirs",), ["theirs"])])
def test_page_of_topics_hides_those_of_others_and_notes_only_who_asked_for_them(
    names: tuple[str, ...], hidden: list[str]
) -> None:
    """Every page of a list would be an attempt at all topics that there are."""
    denied: list[str] = []
    decisions = Authorizer((), AuthorizerSettings()).decisions(ANONYMOUS, HOST)
    access = Access(decisions, IMAGE, 75, lambda *said: denied.append(said[-1]))
    body = topics_body(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "topics", names, response_partition_limit=9)
    answer = in_one_go(
        response_of(describe_topic_partitions_response(IMAGE, body, "x", max_partitions=9, access=access))
    )
    assert [topic.name for topic in answer.topics] == hidden
    assert denied == hidden


def test_transactions_are_described_without_topics_that_may_not_be_seen() -> None:
    """Who may describe a transactional id learns nothing about others' topics."""
    known = response_type(ApiKey.DESCRIBE_TRANSACTIONS, 0)
    topic_type = item_type(known, "transaction_states", "topics")
    state = filled(
        item_type(known, "transaction_states"),
        transactional_id="txn",
        topics=tuple(filled(topic_type, topic=name) for name in ("mine", "theirs")),
    )
    guarding = Guarding(
        BROKER[ApiKey.DESCRIBE_TRANSACTIONS], [(DESCRIBE, TRANSACTION, "txn"), (READ, TOPIC, "mine")]
    )
    body = filled(request_type(ApiKey.DESCRIBE_TRANSACTIONS, 0), transactional_ids=("txn", "other"))
    answer = guarding.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, body, lambda _: filled(known, transaction_states=(state,))
    )
    told = [
        (each.transactional_id, [topic.topic for topic in each.topics]) for each in answer.transaction_states
    ]
    assert told == [("txn", ["mine"]), ("other", [])]
    assert answer.transaction_states[1].error_code is ErrorCode.transactional_id_authorization_failed
    assert guarding.denied == [(DESCRIBE, TRANSACTION, "other")]


@pytest.mark.parametrize(
    ("seen", "error_code", "operations"),
    [(["mine"], FAILED, -(2**31)), (["mine", "theirs"], NONE, 1 << READ | 1 << DESCRIBE)],
)
def test_consumer_group_with_topics_that_may_not_be_seen_is_not_described(
    seen: list[str], error_code: ErrorCode, operations: int
) -> None:
    """Its members' assignments name them."""

    def assignment(name: str) -> Any:
        topic = describe_response.TopicPartitions(topic_id=TOPIC_IDS[name], topic_name=name, partitions=(0,))
        return describe_response.Assignment(topic_partitions=(topic,))

    member = filled(
        describe_response.Member, assignment=assignment("mine"), target_assignment=assignment("theirs")
    )
    group = filled(describe_response.DescribedGroup, group_id="group", members=(member,))
    body = describe_request.ConsumerGroupDescribeRequest(
        group_ids=("group",), include_authorized_operations=True
    )
    guarding = Guarding(
        BROKER[ApiKey.CONSUMER_GROUP_DESCRIBE],
        [(READ, GROUP, "group"), *((DESCRIBE, TOPIC, name) for name in seen)],
    )
    answer = guarding.ask(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        body,
        lambda _: filled(describe_response.ConsumerGroupDescribeResponse, groups=(group,)),
    )
    (told,) = answer.groups
    assert (told.group_id, told.error_code, told.authorized_operations) == ("group", error_code, operations)
    assert bool(told.members) is (error_code is NONE)


def test_offsets_of_all_topics_are_those_that_may_be_described() -> None:
    """The group is the client's, but maybe not all that was once committed in it."""
    known = response_type(ApiKey.OFFSET_FETCH, 8)
    group_type = item_type(known, "groups")
    topic_type = item_type(group_type, "topics")
    body_type = request_type(ApiKey.OFFSET_FETCH, 8)
    asked = filled(item_type(body_type, "groups"), group_id="group", topics=None)
    fetched = filled(
        group_type,
        group_id="group",
        topics=tuple(filled(topic_type, name=name) for name in ("mine", "theirs")),
    )
    guarding = Guarding(BROKER[ApiKey.OFFSET_FETCH], [(DESCRIBE, GROUP, "group"), (DESCRIBE, TOPIC, "mine")])
    answer = guarding.ask(
        ApiKey.OFFSET_FETCH, 8, filled(body_type, groups=(asked,)), lambda _: filled(known, groups=(fetched,))
    )
    assert [topic.name for topic in answer.groups[0].topics] == ["mine"]
    assert guarding.denied == []


def test_topic_that_is_created_is_described_only_to_who_may_see_configurations() -> None:
    """And a throttle time of the handler's is still told."""
    known = response_type(ApiKey.CREATE_TOPICS, 7)
    topic = filled(item_type(known, "topics"), name="new", num_partitions=3, replication_factor=1)
    body = topics_body(ApiKey.CREATE_TOPICS, 7, "topics", ("new",))
    for permissions, told in (
        ([on_cluster(CREATE)], (-1, -1, FAILED)),
        ([on_cluster(CREATE), (DESCRIBE_CONFIGS, TOPIC, "new")], (3, 1, NONE)),
    ):
        answer = Guarding(CONTROLLER[ApiKey.CREATE_TOPICS], permissions).ask(
            ApiKey.CREATE_TOPICS, 7, body, lambda _: Throttled(filled(known, topics=(topic,)), 70)
        )
        assert answer.throttle_ms == 70
        (row,) = answer.response.topics
        assert (row.num_partitions, row.replication_factor, row.topic_config_error_code) == told


def test_topics_named_twice_are_refused_for_that_whoever_asks() -> None:
    """The handler says so; that they are not allowed is not said as well."""
    guarding = Guarding(CONTROLLER[ApiKey.CREATE_TOPICS], [])
    body = topics_body(ApiKey.CREATE_TOPICS, 7, "topics", ("twice", "once", "twice"))
    answer = guarding.ask(ApiKey.CREATE_TOPICS, 7, body)
    assert [topic.name for topic in guarding.handled[0].topics] == ["twice", "twice"]
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("once", FAILED)]


def test_deletion_tells_names_only_to_who_may_describe_them() -> None:
    """What an id stands for is a topic's name."""
    body_type = request_type(ApiKey.DELETE_TOPICS, 6)
    state_type = item_type(body_type, "topics")
    body = filled(
        body_type,
        topics=(
            filled(state_type, name=None, topic_id=TOPIC_IDS["mine"]),
            filled(state_type, name=None, topic_id=TOPIC_IDS["theirs"]),
            filled(state_type, name="nowhere"),
            filled(state_type, name="hidden"),
        ),
    )
    guarding = Guarding(
        CONTROLLER[ApiKey.DELETE_TOPICS], [(DESCRIBE, TOPIC, "mine"), (DESCRIBE, TOPIC, "nowhere")]
    )
    answer = guarding.ask(ApiKey.DELETE_TOPICS, 6, body)
    assert guarding.handled[0].topics == ()
    told = [(row.name, row.topic_id, row.error_code) for row in answer.responses]
    assert told == [
        ("mine", TOPIC_IDS["mine"], FAILED),
        (None, TOPIC_IDS["theirs"], FAILED),
        ("nowhere", None, ErrorCode.unknown_topic_or_partition),
        ("hidden", None, FAILED),
    ]
    assert (DELETE, TOPIC, "nowhere") not in guarding.denied


def test_partitions_beside_a_denied_one_are_not_added_to_the_transaction() -> None:
    """A producer that is told of one failure must not have begun in the others."""
    body_type = request_type(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    topic_type = item_type(body_type, "v3_and_below_topics")
    names = ("mine", "theirs", "__consumer_offsets")
    body = filled(
        body_type,
        v3_and_below_transactional_id="txn",
        v3_and_below_topics=tuple(filled(topic_type, name=name, partitions=(0,)) for name in names),
    )
    permissions: list[Permission] = [(WRITE, TRANSACTION, "txn"), (WRITE, TOPIC, "mine")]
    permissions.append((WRITE, TOPIC, "__consumer_offsets"))
    guarding = Guarding(BROKER[ApiKey.ADD_PARTITIONS_TO_TXN], permissions)
    answer = guarding.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
    assert guarding.handled == []
    told = [
        (topic.name, topic.results_by_partition[0].partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
    ]
    assert told == [
        ("mine", ErrorCode.unknown_topic_or_partition),
        ("theirs", FAILED),
        ("__consumer_offsets", FAILED),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_handed_on_in_versions_in_which_it_is_refused(version: int) -> None:
    """They have the field, as in Kafka. Nothing is looked up for it, so there is nothing to be denied."""
    body_type = request_type(ApiKey.METADATA, version)
    topic = filled(item_type(body_type, "topics"), topic_id=TOPIC_IDS["mine"], name="")
    for each in (topic, filled(type(topic), topic_id=None, name=None)):
        guarding, body = Guarding(BROKER[ApiKey.METADATA], []), filled(body_type, topics=(each,))
        guarding.ask(ApiKey.METADATA, version, body)
        assert (guarding.handled, guarding.denied) == ([body], [])


@pytest.mark.parametrize(
    ("configs", "times"),
    [([("a", "1")], 2), ([("a", None)], 1), ([("a", "1"), ("a", "2")], 1)],
    ids=["resource twice", "null value", "key twice"],
)
@pytest.mark.parametrize("api_key", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_configs_that_cannot_be_changed_so_are_refused_for_that_whoever_asks(
    api_key: ApiKey, configs: list[tuple[str, str | None]], times: int
) -> None:
    """Kafka looks at them before it asks anybody; what is denied beside them is denied."""
    body_type = request_type(api_key, 1)
    resource_type = item_type(body_type, "resources")
    config_type = item_type(resource_type, "configs")

    def resource(name: str, configs: list[tuple[str, str | None]]) -> Any:
        items = tuple(filled(config_type, name=key, value=value) for key, value in configs)
        return filled(resource_type, resource_type=ResourceType.TOPIC, resource_name=name, configs=items)

    resources = (*[resource("mine", configs)] * times, resource("theirs", [("a", "1")]))
    guarding = Guarding(CONTROLLER[api_key], [])
    answer = guarding.ask(api_key, 1, filled(body_type, resources=resources))
    assert [row.error_code for row in answer.responses] == [
        *[ErrorCode.invalid_request] * times,
        ErrorCode.topic_authorization_failed,
    ]
    assert [body.resources for body in guarding.handled] == [()]
    assert guarding.denied == [(AclOperation.ALTER_CONFIGS, AclResourceType.TOPIC, "theirs")]


@pytest.mark.parametrize(("version", "is_asked"), [(5, False), (6, True)])
def test_coordinator_of_a_share_group_is_asked_for_only_where_there_is_one(
    version: int, is_asked: bool
) -> None:
    """Before version 6 there is none, and whoever asks is told that."""
    guarding = Guarding(CONTROLLER[ApiKey.FIND_COORDINATOR], [])
    body = filled(request_type(ApiKey.FIND_COORDINATOR, version), key_type=2, coordinator_keys=("g",))
    guarding.ask(ApiKey.FIND_COORDINATOR, version, body)
    assert (len(guarding.handled), len(guarding.denied)) == ((0, 1) if is_asked else (1, 0))


def test_deletion_where_none_is_allowed_is_refused_for_that_whoever_asks() -> None:
    """What may be deleted is not asked where nothing is."""
    guards = listener_guards(Side.CONTROLLER, BrokerConfig.from_mapping({"delete.topic.enable": "false"}))
    guarding = Guarding(guards[ApiKey.DELETE_TOPICS], [])
    topic = filled(item_type(request_type(ApiKey.DELETE_TOPICS, 6), "topics"), name="theirs", topic_id=None)
    guarding.ask(ApiKey.DELETE_TOPICS, 6, filled(request_type(ApiKey.DELETE_TOPICS, 6), topics=(topic,)))
    assert [body.topics for body in guarding.handled] == [(topic,)]
    assert guarding.denied == []


def test_reassignments_that_are_not_told_are_named_in_the_answer() -> None:
    """As in Kafka, whose clients look up in it what they have asked for."""
    body_type = request_type(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0)
    topic = filled(item_type(body_type, "topics"), name="mine", partition_indexes=(0, 2))
    guarding = Guarding(CONTROLLER[ApiKey.LIST_PARTITION_REASSIGNMENTS], ())
    answer = guarding.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, filled(body_type, topics=(topic,)))
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    (named,) = answer.topics
    assert (named.name, [row.partition_index for row in named.partitions]) == ("mine", [0, 2])
    everything = guarding.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, filled(body_type, topics=None))
    assert everything.topics == ()
