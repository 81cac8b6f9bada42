"""Changes of very many topics: decided part by part, answered as one."""

from typing import Any

from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest

from driver.controller.machine.parts import TOPICS_PER_PART, joined, parts_of, refused
from sparklog.errors import ErrorCode
from sparklog.wire.turns import in_one_go
from tests.unit.driver.controller.conversation import Conversation, creatable

NAMES = [f"topic-{number}" for number in range(3 * TOPICS_PER_PART - 10)]


def create_topics(names: list[str]) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=tuple(creatable(name) for name in names))


def test_parts_of_many_topics_answer_together_what_the_whole_request_would() -> None:
    """A client must not see that its request was divided."""
    wanted = [*NAMES[:70], "bad name", *NAMES[70:], *NAMES[5:7]]
    answers = []
    for parts in ([create_topics(wanted)], in_one_go(parts_of(create_topics(wanted)))):
        conversation = Conversation()
        conversation.start(0, 1, 2)
        replies = [conversation.say(part).reply for part in parts]
        answers.append(in_one_go(joined(create_topics(wanted), replies)))
    whole, divided = (
        [(topic.name, topic.error_code, topic.num_partitions) for topic in answer.topics]
        for answer in answers
    )
    assert len(in_one_go(parts_of(create_topics(wanted)))) == 3
    assert divided == whole
    assert [name for name, error_code, _ in divided if error_code is ErrorCode.invalid_request] == NAMES[5:7]


def test_parts_of_a_small_request_are_the_request() -> None:
    """Most requests are decided as one, and committed in one batch."""
    request = create_topics(NAMES[:TOPICS_PER_PART])
    assert in_one_go(parts_of(request)) == [request]
    everything: Any = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout=None)
    assert in_one_go(parts_of(everything)) == [everything]


def test_parts_keep_together_what_names_the_same_topic() -> None:
    """Named twice is an error for both, which a part that has one of them could not see."""
    again = DeleteTopicState(name="again", topic_id=None)
    others = tuple(DeleteTopicState(name=name, topic_id=None) for name in NAMES)
    parts = in_one_go(parts_of(DeleteTopicsRequest(topics=(again, *others, again), timeout=None)))
    assert [part.topics.count(again) for part in parts] == [2, 0, 0]


def test_parts_beyond_the_partitions_of_one_request_are_refused() -> None:
    """Two megabytes could otherwise ask for a thousand million partitions."""
    reply = refused(create_topics(["a", "b"]))
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("a", ErrorCode.policy_violation),
        ("b", ErrorCode.policy_violation),
    ]
