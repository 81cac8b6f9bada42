"""Topic names, which become directory names."""

import pytest

from sparklog.metadata.topic_names import (
    InvalidTopicNameError,
    check_topic_name,
    find_collision,
    is_internal_topic,
    is_valid_topic_name,
)


@pytest.mark.parametrize("name", ["flights", "a.b", "A_b-9", "...", "x" * 249, "__consumer_offsets"])
def test_check_topic_name_of_a_legal_name_returns(name: str) -> None:
    """Whatever Kafka allows is allowed."""
    check_topic_name(name)
    assert is_valid_topic_name(name)


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
    assert not is_valid_topic_name(name)


def test_find_collision_tells_dot_from_underscore_nowhere() -> None:
    """Kafka refuses the second of two names that differ so."""
    assert find_collision("a.b_c", ["x", "a_b.c"]) == "a_b.c"
    assert find_collision("a.b", ["a.b", "a-b"]) is None


def test_is_internal_topic_knows_kafkas_own() -> None:
    """Clients hide them and may not write them."""
    assert is_internal_topic("__transaction_state")
    assert not is_internal_topic("__mine")
