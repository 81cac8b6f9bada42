"""The tables of configuration keys, and the fields that take their rows."""

import pytest

from sparklog.node.config.broker import BROKER_KEYS
from sparklog.node.config.group_config import GROUP_CONFIG_KEYS
from sparklog.node.config.key_table import parse_rule, read_keys
from sparklog.node.config.topic import TOPIC_KEYS


def test_row_of_a_table_is_a_key_of_its_configuration() -> None:
    """A row without a field would be a key that nobody can set."""
    assert read_keys("broker.toml").keys() == BROKER_KEYS.keys()
    assert read_keys("topic.toml").keys() <= TOPIC_KEYS.keys()
    assert read_keys("group.toml").keys() == GROUP_CONFIG_KEYS.keys()


def test_default_of_a_row_is_missing_empty_or_a_value() -> None:
    """`log.dirs` without a value means directories of the application's; an empty list would mean none."""
    keys = read_keys("broker.toml")
    assert keys["log.dirs"].default is None
    assert keys["super.users"].default == ""
    assert keys["sasl.enabled.mechanisms"].default == ("GSSAPI",)
    assert keys["log.cleaner.io.buffer.load.factor"].default == 0.9


@pytest.mark.parametrize(
    "text",
    [
        "at least -1",
        "from -131072 to 22",
        "one of true, always, false",
        "a list of compact, delete, none of them twice",
        "-1, or from 1 to 9",
    ],
)
def test_rule_is_written_as_errors_show_it(text: str) -> None:
    """The table and the message of a refused value have the same words."""
    assert parse_rule(text).allowed == text


def test_text_of_no_rule_is_refused() -> None:
    """A limit with a typing error would be no limit."""
    with pytest.raises(ValueError, match="at most 7"):
        parse_rule("at most 7")
