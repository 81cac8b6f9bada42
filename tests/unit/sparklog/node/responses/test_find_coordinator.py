"""FindCoordinator, of images made by hand."""

from typing import Any
from uuid import UUID

import pytest
from kio.schema.find_coordinator.v0.request import FindCoordinatorRequest as FindCoordinatorV0
from kio.schema.find_coordinator.v2.request import FindCoordinatorRequest as FindCoordinatorV2
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest as FindCoordinatorV6

from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration, TopicImage
from sparklog.node.metadata.partition_for import partition_for
from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.node.responses.find_coordinator import find_coordinator
from sparklog.node.serving.requests import Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.steps import in_one_go
from sparklog.protocol.errors import ErrorCode
from tests import builders

PARTITIONS = 50
LEADERLESS = "a group whose partition nobody leads"


def image(fenced: bool = False) -> MetadataImage:
    """__consumer_offsets, each partition led by the broker of its number, but one led by nobody."""
    partitions = {
        number: PartitionRegistration(
            replicas=(number,),
            directories=(UUID(int=1),),
            isr=(number,),
            leader=None if number == partition_for(LEADERLESS, PARTITIONS) else number,
            leader_epoch=0,
            partition_epoch=0,
        )
        for number in range(PARTITIONS)
    }
    topic = TopicImage(CONSUMER_OFFSETS_TOPIC, UUID(int=9), partitions)
    return builders.image([builders.broker(number, fenced=fenced) for number in range(PARTITIONS)], [topic])


def ask(cluster: MetadataImage, body: Any) -> tuple[Any, list[str]]:
    """Return the answer, and the topics that are to be made."""
    made: list[str] = []
    version = type(body).__version__
    request = Request(
        ApiKey.FIND_COORDINATOR,
        version,
        1,
        "test",
        body,
        memoryview(b""),
        None,  # type: ignore[arg-type]
        "PLAINTEXT",
    )
    return in_one_go(find_coordinator(request, cluster, "PLAINTEXT", made.extend)), made


def test_coordinator_of_a_group_leads_the_partition_of_its_hash() -> None:
    """Every broker must send a group to the same one, and that one must know it."""
    answer, made = ask(image(), FindCoordinatorV6(key_type=0, coordinator_keys=("group", "größe", "🚀")))
    assert [(found.key, found.node_id, found.host, found.port) for found in answer.coordinators] == [
        ("group", 47, "host-47", 9092),
        ("größe", 7, "host-7", 9092),
        ("🚀", 27, "host-27", 9092),
    ]
    assert {found.error_code for found in answer.coordinators} == {ErrorCode.none}
    assert made == []
    oldest, _ = ask(image(), FindCoordinatorV0(key="group"))
    assert (oldest.error_code, oldest.node_id, oldest.host) == (ErrorCode.none, 47, "host-47")


@pytest.mark.parametrize(("key_type", "topic"), [(0, CONSUMER_OFFSETS_TOPIC), (1, TRANSACTION_STATE_TOPIC)])
def test_coordinator_whose_topic_does_not_exist_is_not_available_and_the_topic_is_made(
    key_type: int, topic: str
) -> None:
    """Clients ask again on this code, and find it then."""
    answer, made = ask(EMPTY_IMAGE, FindCoordinatorV6(key_type=key_type, coordinator_keys=("a", "b")))
    assert [(found.key, found.error_code, found.node_id, found.port) for found in answer.coordinators] == [
        ("a", ErrorCode.coordinator_not_available, -1, -1),
        ("b", ErrorCode.coordinator_not_available, -1, -1),
    ]
    assert made == [topic]
    older, _ = ask(EMPTY_IMAGE, FindCoordinatorV2(key="a", key_type=key_type))
    assert (older.error_code, older.node_id) == (ErrorCode.coordinator_not_available, -1)


def test_request_of_which_a_guard_has_left_no_key_makes_no_topic() -> None:
    """Who may ask for none of the ids is not to have the cluster make fifty partitions."""
    answer, made = ask(EMPTY_IMAGE, FindCoordinatorV6(key_type=0, coordinator_keys=()))
    assert answer.coordinators == () and made == []


@pytest.mark.parametrize(("cluster", "key"), [(image(), LEADERLESS), (image(fenced=True), "group")])
def test_coordinator_that_cannot_be_reached_is_not_available(cluster: MetadataImage, key: str) -> None:
    """A client that is sent to a dead broker waits for its connection before it asks again."""
    answer, made = ask(cluster, FindCoordinatorV6(key_type=0, coordinator_keys=(key,)))
    assert [found.error_code for found in answer.coordinators] == [ErrorCode.coordinator_not_available]
    assert made == []


def test_coordinator_of_an_id_that_no_record_can_name_does_not_exist() -> None:
    """A key of a hundred megabytes is not even looked at."""
    answer, _ = ask(image(), FindCoordinatorV6(key_type=0, coordinator_keys=("g" * 32_767, "g" * 32_768)))
    assert [found.error_code for found in answer.coordinators] == [
        ErrorCode.none,
        ErrorCode.invalid_request,
    ]


@pytest.mark.parametrize("key_type", [2, 9])
def test_coordinator_of_share_groups_does_not_exist(key_type: int) -> None:
    """A broker without share groups says so for good: a retriable code would have the client try for ever."""
    answer, made = ask(image(), FindCoordinatorV6(key_type=key_type, coordinator_keys=("a",)))
    assert ([found.error_code for found in answer.coordinators], made) == ([ErrorCode.invalid_request], [])
