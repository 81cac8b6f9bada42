"""A read-only broker refuses what clients write, so that an orderly stop finds an end of every log."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from sparklog.executor.api.read_only import REFUSALS, ReadOnly, refusing_writes
from sparklog.node.apis.row import Side
from sparklog.node.apis.table import ROWS
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, ResourceType
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL
from sparklog.node.serving.requests import ANONYMOUS, Api, Peer, Request
from sparklog.protocol.codec.apis import ApiKey, request_type
from sparklog.protocol.codec.error_counts import count_error_codes
from sparklog.protocol.codec.frames import encode_response_frame, request_codec
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.unit.sparklog.node.serving.entities import arbitrary_entity

HANDLED = object()
CONFIG = BrokerConfig(node_id=1)


def asked(api_key: ApiKey, body: Any, *, read_only: bool = True, inside: bool = False) -> Any:
    table = refusing_writes({api_key: Api(0, 99, lambda request: HANDLED)}, lambda: read_only)
    version = int(body.__version__)
    request = Request(api_key, version, 1, "c", body, memoryview(b""), cast(Peer, None), "test")
    request.principal = CLUSTER_PRINCIPAL if inside else ANONYMOUS
    return table[api_key].handler(request)


@pytest.mark.parametrize("api_key", REFUSALS)
def test_write_of_a_client_is_refused_with_an_error_that_clients_retry(api_key: ApiKey) -> None:
    """The refusal can be written in every version, and the application's own requests pass."""
    source = random.Random(7)
    versions = ROWS[api_key].versions_at(Side.BROKER)
    for version in range(versions.min_version, versions.max_version + 1):
        body = arbitrary_entity(request_type(api_key, version), source)
        if api_key is ApiKey.PRODUCE:
            body = replace(body, acks=-1)
        if api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
            body = replace(body, member_epoch=0)
        answer = asked(api_key, body)
        counted: dict[ErrorCode, int] = dict.fromkeys(ErrorCode, 0)
        count_error_codes(answer, counted)  # type: ignore[arg-type]
        assert {code for code, count in counted.items() if count} <= {REFUSALS[api_key], ErrorCode.none}
        assert encode_response_frame(request_codec(api_key, version), 1, answer)
        assert asked(api_key, body, inside=True) is HANDLED
        assert asked(api_key, body, read_only=False) is HANDLED


def test_produce_without_acknowledgement_is_refused_by_the_end_of_its_connection() -> None:
    """It has no response in which an error could stand."""
    body = replace(arbitrary_entity(request_type(ApiKey.PRODUCE, 9), random.Random(1)), acks=0)
    with pytest.raises(KafkaError, match="read-only"):
        asked(ApiKey.PRODUCE, body)


def test_requests_that_read_or_end_a_transaction_are_handled() -> None:
    """A consumer reads on, and a producer that ends its transaction leaves one less to abort."""
    for api_key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.END_TXN, ApiKey.HEARTBEAT):
        body = arbitrary_entity(request_type(api_key, 4), random.Random(1))
        assert asked(api_key, body) is HANDLED


@pytest.mark.parametrize(("member_epoch", "is_handled"), [(-2, False), (-1, False), (0, False), (3, True)])
def test_heartbeat_is_handled_unless_its_member_joins_or_leaves(member_epoch: int, is_handled: bool) -> None:
    """Each of these writes to the group's log, and expired sessions would, too."""
    body = arbitrary_entity(request_type(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1), random.Random(1))
    answer = asked(ApiKey.CONSUMER_GROUP_HEARTBEAT, replace(body, member_epoch=member_epoch))
    assert (answer is HANDLED) == is_handled


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, False),
        ({(ResourceType.BROKER, ""): {"sparklog.read.only": "true"}}, True),
        ({(ResourceType.BROKER, "1"): {"sparklog.read.only": "true"}}, True),
        ({(ResourceType.BROKER, "2"): {"sparklog.read.only": "true"}}, False),
    ],
)
def test_broker_is_read_only_by_its_dynamic_configuration(
    configs: Mapping[tuple[int, str], Mapping[str, str]], expected: bool
) -> None:
    """The controller sets it for all brokers in the metadata log, which every broker follows."""
    images: list[MetadataImage] = [EMPTY_IMAGE]
    read_only = ReadOnly(CONFIG, lambda: images[-1])
    assert not read_only()
    images.append(replace(EMPTY_IMAGE, configs=configs))
    assert read_only() is expected
    images.append(EMPTY_IMAGE)
    assert not read_only()
