"""Every API has one complete row, and each side's listeners offer what the rows say."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from sparklog.node.apis.cluster_actions import cluster_actions
from sparklog.node.apis.listeners import listener_apis, listener_guards, offered
from sparklog.node.apis.row import ApiRow, Side
from sparklog.node.apis.table import CLIENT_VERSIONS, FORWARDED_APIS, ROWS, by_api_key
from sparklog.node.authorization.guards.guard import pass_on
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type
from sparklog.protocol.codec.fixed.produce import request_reader
from sparklog.protocol.codec.frames import encode_response_frame, read_request_header, request_codec
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.serving.entities import arbitrary_entity
from tests.unit.sparklog.protocol.codec.fixed.requests import VERSIONS, frame_of, produce

CLIENTS_ARE_OFFERED: Final = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 2),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.UPDATE_FEATURES: (1, 1),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (0, 0),
    ApiKey.PUSH_TELEMETRY: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}
"""By brokers and at the bootstrap address alike."""
UNDER_LEASE: Final = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
}
FORWARDED: Final = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
}
FROM_BROKERS: Final = {
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ADD_RAFT_VOTER,
}
"""The APIs that only the controller's listener has, in all versions known here."""
MANY_AT_CONTROLLER: Final = {
    ApiKey.METADATA,
    ApiKey.FIND_COORDINATOR,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
}
"""The APIs whose requests the controller may read in steps."""
RESERVED: Final = {
    Side.BROKER: {ApiKey.FETCH, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.WRITE_TXN_MARKERS},
    Side.CONTROLLER: {ApiKey.FETCH, *FROM_BROKERS},
    Side.QUORUM: set[ApiKey](),
}
AT_QUORUM: Final = {
    ApiKey.FETCH: (13, 18, False),
    ApiKey.LIST_OFFSETS: (1, 11, True),
    ApiKey.VOTE: (0, 2, False),
    ApiKey.BEGIN_QUORUM_EPOCH: (0, 1, False),
    ApiKey.END_QUORUM_EPOCH: (0, 1, False),
    ApiKey.DESCRIBE_QUORUM: (0, 2, False),
    ApiKey.FETCH_SNAPSHOT: (0, 1, False),
}
TIMES: Final = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 4,
    ApiKey.OFFSET_COMMIT: 7,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.FIND_COORDINATOR: 10,
    ApiKey.DESCRIBE_GROUPS: 9,
    ApiKey.CREATE_TOPICS: 11,
    ApiKey.ADD_PARTITIONS_TO_TXN: 6,
    ApiKey.WRITE_TXN_MARKERS: 9,
    ApiKey.ELECT_LEADERS: 14,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 10,
}
"""Measured (`python -m tests.amplification`); all others take the usual times."""
DIVIDED: Final = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
}
STRICT_MUTATIONS: Final = {ApiKey.CREATE_TOPICS: 6, ApiKey.DELETE_TOPICS: 5, ApiKey.CREATE_PARTITIONS: 3}
ABOUT_TOKENS: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
BEFORE_LOGIN: Final = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}

EACH_ROW: Final = pytest.mark.parametrize("row", ROWS.values(), ids=[key.name for key in ROWS])


def handle(request: Any) -> Any:
    """Answer nothing."""


def table_of(side: Side) -> dict[ApiKey, tuple[int, int, bool]]:
    """Return versions and `many` of each API of a side's listeners."""
    apis = listener_apis(side, dict.fromkeys(offered(side), handle))
    return {key: (api.min_version, api.max_version, api.many) for key, api in apis.items()}


def test_broker_offers_clients_the_apis_of_the_rows() -> None:
    """An API that disappears from ApiVersions breaks its clients; one that appears unawares is open."""
    assert {key: tuple(versions) for key, versions in CLIENT_VERSIONS.items()} == CLIENTS_ARE_OFFERED
    few = {ApiKey.ALTER_USER_SCRAM_CREDENTIALS, *ABOUT_TOKENS}
    assert table_of(Side.BROKER) == {
        key: (*versions, key not in few) for key, versions in CLIENTS_ARE_OFFERED.items()
    }


def test_broker_answers_under_its_lease_what_depends_on_partitions() -> None:
    """A broker whose lease has ended must not answer for partitions that another one leads by now."""
    apis = listener_apis(Side.BROKER, dict.fromkeys(offered(Side.BROKER), handle), lambda: None)
    assert {key for key, api in apis.items() if api.under is not None} == UNDER_LEASE
    answered = {key for key, api in apis.items() if api.refuse is not None}
    assert answered == FORWARDED | ABOUT_TOKENS | {ApiKey.DESCRIBE_TOPIC_PARTITIONS}
    assert FORWARDED_APIS == FORWARDED


def test_controller_offers_what_brokers_do_and_what_brokers_ask() -> None:
    """Some clients take the versions of the bootstrap address for those of the cluster."""
    versions = CLIENTS_ARE_OFFERED | {key: tuple(known_versions(key)) for key in FROM_BROKERS}
    assert table_of(Side.CONTROLLER) == {
        key: (*span, key in MANY_AT_CONTROLLER) for key, span in versions.items()
    }


def test_quorum_listener_offers_what_candidates_and_leaders_ask() -> None:
    """A candidate that can't ask a voter never wins."""
    assert table_of(Side.QUORUM) == AT_QUORUM


@pytest.mark.parametrize("side", Side)
def test_reserved_requests_of_each_side_are_those_that_could_take_the_cluster_over(side: Side) -> None:
    """A row that lost its reservation would let strangers register as brokers."""
    assert set(cluster_actions(side, BrokerConfig())) == RESERVED[side]


def test_rows_say_what_large_requests_cost_and_how_they_are_divided() -> None:
    """A request of ten thousand topics must hold neither the memory nor the loop."""
    usual = {row.memory_times for key, row in ROWS.items() if key not in TIMES}
    assert ({key: ROWS[key].memory_times for key in TIMES}, usual) == (TIMES, {5})
    assert {key for key, row in ROWS.items() if row.parts is not None} == DIVIDED
    strict = {key: row.strict_mutations_since for key, row in ROWS.items() if row.strict_mutations_since}
    assert strict == STRICT_MUTATIONS


def test_guards_stand_before_every_offered_api() -> None:
    """An API without a guard would fail for every client of a cluster with an authorizer."""
    for side in (Side.BROKER, Side.CONTROLLER):
        guards = listener_guards(side, BrokerConfig())
        assert set(guards) == offered(side) | BEFORE_LOGIN
        assert {guards[key] for key in BEFORE_LOGIN} == {pass_on}


@EACH_ROW
def test_row_of_each_api_is_complete(row: ApiRow) -> None:
    """A row that no listener offers, or versions that can't be read, are found here and not by a client."""
    offers = [offer for offer in map(row.offer, Side) if offer is not None]
    assert bool(offers) != row.answered_by_listener
    assert (row.versions is None) == (row.broker is None), "clients are offered what brokers answer"
    if row.forwarded:
        assert row.controller is not None
        assert row.broker is not None and row.broker.answers_errors
    known = known_versions(row.api_key)
    for side in Side:
        assert row.versions_at(side).intersection(known) == row.versions_at(side)
    if row.parts is not None:
        assert row.controller is not None
        codec = request_codec(row.api_key, known.max_version)
        assert hasattr(codec.request_type, "__dataclass_fields__")
        assert row.parts.asked in codec.request_type.__dataclass_fields__
        assert row.parts.answered in codec.response_type.__dataclass_fields__


@EACH_ROW
def test_refusal_of_each_row_can_be_sent_in_every_version(row: ApiRow) -> None:
    """A refusal that can't be written closes the connection, and its client tries again for ever."""
    error = KafkaError(ErrorCode.request_timed_out, "the controller does not answer")
    source = random.Random(int(row.api_key))
    known = known_versions(row.api_key)
    for version in range(known.min_version, known.max_version + 1):
        for _ in range(4):
            answer = row.refused(arbitrary_entity(request_type(row.api_key, version), source), error)
            answer = in_one_go(answer) if hasattr(answer, "send") else answer
            assert encode_response_frame(request_codec(row.api_key, version), 1, answer)


def test_rows_of_the_hot_path_are_read_in_fixed_layouts_where_their_handlers_take_them() -> None:
    """Entities would cost each batch a tenth of the brokers' CPU again, and no other test would fail."""
    for side in Side:
        apis = listener_apis(side, dict.fromkeys(offered(side), handle))
        fixed = {
            api_key: [
                version
                for version in range(api.min_version, api.max_version + 1)
                if api.fixed_reader(version) is not None
            ]
            for api_key, api in apis.items()
            if api.fixed_reader is not None
        }
        of_brokers = {ApiKey.PRODUCE: list(range(3, 14)), ApiKey.FETCH: [17]}
        assert fixed == (of_brokers if side is Side.BROKER else {})


_NO_CONNECTION: Any = None


@pytest.mark.parametrize("version", VERSIONS)
def test_refusal_of_a_fixed_request_is_that_of_its_entity(version: int) -> None:
    """A read-only broker must not close the connection of a client that it refuses."""
    row, error = ROWS[ApiKey.PRODUCE], KafkaError(ErrorCode.not_leader_or_follower, "it is read-only")
    frame = frame_of(produce(version))
    reader = request_reader(version)
    assert reader is not None
    fixed = reader(frame, read_request_header(frame)[1])
    assert fixed is not None
    request = Request(ApiKey.PRODUCE, version, 1, "c", fixed, memoryview(frame), _NO_CONNECTION, "PLAINTEXT")
    refused = row.refuse(request, error)
    assert refused == row.refused(produce(version), error)
    assert encode_response_frame(request_codec(ApiKey.PRODUCE, version), 1, refused)


def test_second_row_of_an_api_is_a_mistake() -> None:
    """Half of what both sides know would come from one row, and half from the other."""
    fetch = ROWS[ApiKey.FETCH]
    with pytest.raises(ValueError, match="FETCH has two rows in sparklog/node/apis"):
        by_api_key([fetch, ROWS[ApiKey.PRODUCE], replace(fetch, memory_times=9)])


def test_handler_of_an_api_that_a_side_does_not_offer_is_a_mistake() -> None:
    """A handler without a row would be served without a guard."""
    with pytest.raises(ValueError, match="VOTE has a handler, but no offer of the broker"):
        listener_apis(Side.BROKER, {ApiKey.VOTE: handle})
