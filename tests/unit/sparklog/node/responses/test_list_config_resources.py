"""ListConfigResources: what there is to describe, by type."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest

from sparklog.node.metadata.image import TopicImage
from sparklog.node.metadata.schemas import ResourceType
from sparklog.node.responses.list_config_resources import list_config_resources_response
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests import builders

FLIGHTS = TopicImage("flights", UUID(int=1), {})
IMAGE = builders.image(
    [builders.broker(7)],
    [FLIGHTS],
    configs={(ResourceType.CLIENT_METRICS, "all"): {"interval.ms": "1000"}, (ResourceType.BROKER, ""): {}},
)
TOPIC, BROKER, LOGGER, METRICS = (2, "flights"), (4, "7"), (8, "7"), (16, "all")


@pytest.mark.parametrize(
    ("version", "asked", "listed"),
    [
        (0, (), [METRICS]),
        (1, (), [TOPIC, BROKER, LOGGER, METRICS]),
        (1, (4,), [BROKER]),
        (1, (16, 2, 16), [METRICS, TOPIC]),
        (1, (32,), []),
    ],
)
def test_resources_of_the_types_asked_for_are_listed(
    version: int, asked: tuple[int, ...], listed: list[tuple[int, str]]
) -> None:
    """Tools describe what they find here; version 0 knows client metrics only."""
    request: Any = ListConfigResourcesRequest(resource_types=asked)
    answer = in_one_go(list_config_resources_response(IMAGE, request, version))
    assert answer.error_code is ErrorCode.none
    assert [(each.resource_type, each.resource_name) for each in answer.config_resources] == listed


def test_unknown_type_is_refused() -> None:
    """An empty list would read as: there are none."""
    request: Any = ListConfigResourcesRequest(resource_types=(4, 3))
    answer = in_one_go(list_config_resources_response(IMAGE, request, 1))
    assert (answer.error_code, answer.config_resources) == (ErrorCode.unsupported_version, ())
