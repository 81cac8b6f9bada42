"""Who writes what retention deletes is told, with the numbers, and nobody else."""

from collections.abc import Mapping, Sequence

import pytest

from sparklog.user.dataframe.retention_warning import KNOWN_FOR_MS, TopicSettings, oldest_of, too_old

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000 + 10 * DAY_MS
WEEK = {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "message.timestamp.type": "CreateTime"}


def test_records_older_than_retention_are_warned_of_with_the_numbers() -> None:
    """They were acknowledged, and are gone at the next look of retention: nothing else would tell."""
    warning = too_old("readings", 1_700_000_000_000, WEEK, NOW_MS)
    assert warning is not None
    assert warning.startswith(
        "Records with timestamps back to 2023-11-14 22:13:20 UTC were written to topic readings, which keeps "
        "7 days, 0:00:00 (retention.ms=604800000)"
    )


@pytest.mark.parametrize(
    ("age_days", "config"),
    [
        (6, WEEK),
        (10, WEEK | {"retention.ms": "-1"}),
        (10, WEEK | {"cleanup.policy": "compact"}),
        (10, WEEK | {"message.timestamp.type": "LogAppendTime"}),
        (10, {}),
    ],
    ids=["young enough", "kept for ever", "compacted", "timestamps are the broker's", "unknown"],
)
def test_records_that_retention_keeps_are_not_warned_of(age_days: int, config: dict[str, str]) -> None:
    """A warning that cries wolf is not read."""
    assert too_old("readings", NOW_MS - age_days * DAY_MS, config, NOW_MS) is None


def test_settings_are_asked_for_every_now_and_then_only() -> None:
    """Each batch of a stream of old events, of a topic that keeps them even, ended with such a question."""
    asked: list[Sequence[str]] = []

    def ask(topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        asked.append(topics)
        return dict.fromkeys(topics, WEEK)

    settings = TopicSettings()
    for topics, now_ms in (({"a"}, 0), ({"a"}, 1), ({"b", "a"}, 2), ({"a", "b"}, KNOWN_FOR_MS)):
        assert settings.of(topics, NOW_MS + now_ms, ask) == dict.fromkeys(topics, WEEK)
    assert asked == [["a"], ["b"], ["a"]]


def test_oldest_timestamp_is_that_of_all_tasks() -> None:
    """Each task knows its own rows only."""
    assert oldest_of([{"a": 3, "b": 9}, {}, {"a": 2}]) == {"a": 2, "b": 9}
