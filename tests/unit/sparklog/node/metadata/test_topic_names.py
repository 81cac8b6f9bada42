"""Topic names, which become directory names."""

import pytest

from sparklog.node.metadata.topic_names import (
    InvalidTopicNameError,
    check_topic_name,
    collision_key,
    is_internal_topic,
)


@pytest.mark.parametrize("name", ["flights", "a.b", "A_b-9", "...", "x" * 249, "__consumer_offsets"])
def test_check_topic_name_of_a_legal_name_returns(name: str) -> None:
    """Whatever Kafka allows is allowed."""
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "empty"),
        (".", "cannot be named"),
        ("..", "cannot be named"),
        ("x" * 250, "250 characters"),
        ("a/b", "other than"),
        ("../etc", "other than"),
        ("flights\n", "other than"),
        ("flüge", "other than"),
        ("a b", "other than"),
        ("a\0", "other than"),
    ],
)
def test_check_topic_name_of_an_illegal_name_says_why(name: str, said: str) -> None:
    """Nothing that could leave the data directory gets through."""
    with pytest.raises(InvalidTopicNameError, match=said):
        check_topic_name(name)


def test_collision_key_tells_dot_from_underscore_nowhere() -> None:
    """Kafka refuses the second of two names that differ so."""
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")


def test_is_internal_topic_knows_kafkas_own() -> None:
    """Clients hide them and may not write them."""
    assert is_internal_topic("__transaction_state")
    assert not is_internal_topic("__mine")
