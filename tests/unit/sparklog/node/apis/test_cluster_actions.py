"""What only driver and brokers may ask: refused to everybody else, whatever ACLs say, in every version."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from sparklog.node.acls.acl import AclOperation, Principal
from sparklog.node.apis.cluster_actions import cluster_actions, guarded_cluster_actions
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import ROWS
from sparklog.node.authorization.guards.cluster import of_cluster
from sparklog.node.config import BrokerConfig
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import ANONYMOUS, Api, Peer, Request
from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type
from sparklog.protocol.codec.frames import encode_response_frame, request_codec
from sparklog.protocol.errors import ErrorCode
from tests.unit.sparklog.node.serving.entities import arbitrary_entity

OPEN = BrokerConfig()
WITH_AUTHORIZER = BrokerConfig.from_mapping(
    {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
)
FORGED = [ANONYMOUS, Principal("User", "sparklog"), Principal(*CLUSTER_PRINCIPAL)]
"""Nobody, a user who bears the name, and one of whom an Envelope says it."""
HANDLED = object()
OF_CONTROLLER = cluster_actions(Side.CONTROLLER, OPEN)


@dataclass
class Noting:
    """The part of a connection that is told of refusals."""

    peer: str = "127.0.0.1:1"
    notes: list[str] = field(default_factory=list)

    def note(self, reason: str, what: str) -> None:
        self.notes.append(what)


def asked(
    reserved: Mapping[ApiKey, Any], api_key: ApiKey, body: Any, principal: Principal
) -> tuple[Any, list[str]]:
    """Return the answer, and what was noted of it."""
    connection = Noting()
    version = int(body.__version__)
    table = guarded_cluster_actions({api_key: Api(0, 99, lambda request: HANDLED)}, reserved)
    request = Request(api_key, version, 1, "c", body, memoryview(b""), cast(Peer, connection), "test")
    request.principal = principal
    return table[api_key].handler(request), connection.notes


@pytest.mark.parametrize("api_key", OF_CONTROLLER)
def test_request_of_driver_and_brokers_is_refused_to_strangers(api_key: ApiKey) -> None:
    """Whoever could send one of these could take the cluster over. A refusal that can't be written closes the
    connection, and is tried again."""
    source = random.Random(3)
    served = known_versions(api_key)
    for version in range(
        max(served.min_version, 7 if api_key is ApiKey.FETCH else 0), served.max_version + 1
    ):
        body = arbitrary_entity(request_type(api_key, version), source)
        for principal in FORGED:
            answer, notes = asked(OF_CONTROLLER, api_key, body, principal)
            assert answer.error_code is ErrorCode.cluster_authorization_failed
            assert encode_response_frame(request_codec(api_key, version), 1, answer)
            assert len(notes) == 1 and api_key.name in notes[0]
        assert asked(OF_CONTROLLER, api_key, body, CLUSTER_PRINCIPAL) == (HANDLED, [])


def test_fetch_as_a_replica_is_refused_to_strangers_and_a_consumers_is_not() -> None:
    """CVE-2018-1288: a consumer that says it is a follower would move the high watermark past real ones."""
    reserved = cluster_actions(Side.BROKER, OPEN)
    source = random.Random(5)
    for version in range(4, known_versions(ApiKey.FETCH).max_version + 1):
        body = arbitrary_entity(request_type(ApiKey.FETCH, version), source)
        for replica_id in (-1, 0, 7):
            if version >= 15:
                state = replace(body.replica_state, replica_id=replica_id)
                body = replace(body, replica_state=state)
            else:
                body = replace(body, replica_id=replica_id)
            for principal in FORGED:
                answer, _ = asked(reserved, ApiKey.FETCH, body, principal)
                assert (answer is HANDLED) == (replica_id == -1)
            assert asked(reserved, ApiKey.FETCH, body, CLUSTER_PRINCIPAL) == (HANDLED, [])


@pytest.mark.parametrize(
    ("config", "commits", "is_handled"),
    [(OPEN, False, True), (OPEN, True, False), (WITH_AUTHORIZER, False, True), (WITH_AUTHORIZER, True, True)],
)
def test_markers_of_strangers_only_abort_unless_an_authorizer_says_who_may(
    config: BrokerConfig, commits: bool, is_handled: bool
) -> None:
    """KIP-664's tool aborts what hangs; a marker that commits would show what its producer never ended."""
    reserved = cluster_actions(Side.BROKER, config)
    marker_of = random.Random(1)
    body = arbitrary_entity(request_type(ApiKey.WRITE_TXN_MARKERS, 1), marker_of)
    while not body.markers:
        body = arbitrary_entity(request_type(ApiKey.WRITE_TXN_MARKERS, 1), marker_of)
    markers = tuple(replace(marker, transaction_result=False) for marker in body.markers)
    markers = (*markers, replace(markers[0], transaction_result=commits))
    body = replace(body, markers=markers)
    answer, _ = asked(reserved, ApiKey.WRITE_TXN_MARKERS, body, ANONYMOUS)
    assert (answer is HANDLED) == is_handled


def test_additions_of_brokers_are_refused_to_strangers_and_clients_are_not() -> None:
    """From version 4 on one request adds for any transactional ids (KIP-890)."""
    reserved = cluster_actions(Side.BROKER, WITH_AUTHORIZER)
    source = random.Random(1)
    for version in range(known_versions(ApiKey.ADD_PARTITIONS_TO_TXN).max_version + 1):
        body = arbitrary_entity(request_type(ApiKey.ADD_PARTITIONS_TO_TXN, version), source)
        answer, _ = asked(reserved, ApiKey.ADD_PARTITIONS_TO_TXN, body, ANONYMOUS)
        assert (answer is HANDLED) == (version < 4)


def test_whatever_asks_for_cluster_action_on_the_controller_is_for_those_inside() -> None:
    """An API that is added with Kafka's permission alone would be open to everybody without an authorizer."""
    asks = of_cluster(AclOperation.CLUSTER_ACTION).__code__
    of_cluster_action = set()
    for row in ROWS.values():
        guard: Any = row.controller and row.controller.guard
        is_of_cluster = getattr(guard, "__code__", None) is asks
        if is_of_cluster and guard.__closure__[0].cell_contents is AclOperation.CLUSTER_ACTION:
            of_cluster_action.add(row.api_key)
    assert len(of_cluster_action) == 8
    assert of_cluster_action | {ApiKey.ADD_RAFT_VOTER} == set(OF_CONTROLLER)
