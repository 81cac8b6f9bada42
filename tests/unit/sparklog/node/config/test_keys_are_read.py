"""A key that is accepted has an effect, or says in its documentation that it has none."""

import ast
from functools import cache
from pathlib import Path

from sparklog.node.config import BROKER_KEYS, TOPIC_KEYS
from sparklog.node.config.broker import BROKER_ATTRIBUTES
from sparklog.node.config.keys.ignored_broker_keys import IGNORED_DYNAMIC_KEYS
from sparklog.node.config.keys.ignored_group_keys import IGNORED_GROUP_KEYS
from sparklog.node.config.topic import TOPIC_ATTRIBUTES, TOPIC_SYNONYMS

REPOSITORY = Path(__file__).parents[5]
STORED_ONLY = "Stored for Kafka's tools, without effect:"
WITHOUT_EFFECT = "Taken from Kafka's files, without effect:"
"""The beginnings of the documentation of keys without an effect."""


@cache
def attributes_read() -> frozenset[str]:
    """Return every attribute name that the shipped code reads from something."""
    return frozenset(
        node.attr
        for package in ("sparklog", "executor", "driver", "jobs")
        for path in (REPOSITORY / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


def test_every_topic_key_is_read_or_documented_as_stored() -> None:
    """Somebody who sets retention of whatever kind must be able to rely on it, or be told."""
    stored = {name for name, key in TOPIC_KEYS.items() if key.documentation.startswith(STORED_ONLY)}
    unread = {name for name, attribute in TOPIC_ATTRIBUTES.items() if attribute not in attributes_read()}
    assert unread <= stored


def test_every_broker_key_is_read_or_the_default_of_a_topic_key_that_is() -> None:
    """What nobody obeys is refused: a setting must not be lost in silence."""
    defaults = {synonym.name for synonyms in TOPIC_SYNONYMS.values() for synonym in synonyms}
    unread = {
        name
        for name, key in BROKER_KEYS.items()
        if not (key.assigned or name in defaults or BROKER_ATTRIBUTES[name] in attributes_read())
    }
    assert unread == set()
    assert not any(key.documentation.startswith(STORED_ONLY) for key in BROKER_KEYS.values())


def test_broker_keys_without_an_effect_say_so_and_are_no_others() -> None:
    """A key is obeyed or kept, never both, and whoever looks a kept one up is told that it does nothing."""
    kept = {**IGNORED_GROUP_KEYS, **IGNORED_DYNAMIC_KEYS}
    assert kept.keys().isdisjoint(BROKER_KEYS)
    assert all(key.documentation.startswith(WITHOUT_EFFECT) for key in kept.values())
