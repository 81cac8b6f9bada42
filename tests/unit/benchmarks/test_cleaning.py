"""Whoever leaves keys out cleans faster: both sides must have left the same, and neither is always first."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.cleaning import (
    Case,
    Left,
    Result,
    clean_here,
    cleaned_up_to,
    left_in,
    measure,
    write_log,
)
from sparklog.protocol.records.codecs import Codec

EXPECTED = Left(records=5, keys=5)


def side(name: str, cleaned: list[str], left: Left = EXPECTED) -> Callable[[], Result]:
    """Return a side that says when it cleans, and takes as many seconds as there were cleanings before."""

    def clean() -> Result:
        cleaned.append(name)
        return Result(len(cleaned), 1.0, 1.0, left)

    return clean


def test_measure_sides_take_turns_and_the_first_round_does_not_count() -> None:
    """A machine that drifts, and a broker that has just started, are nobody's merit."""
    cleaned: list[str] = []
    sides = {name: side(name, cleaned) for name in ("ours", "theirs")}
    results = measure(sides, rounds=2, expected=EXPECTED)
    assert cleaned == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert {name: [each.seconds for each in of_side] for name, of_side in results.items()} == {
        "ours": [4, 5],
        "theirs": [3, 6],
    }


def test_measure_side_that_leaves_something_else_is_refused() -> None:
    """In the round that does not count, too."""
    sides = {"ours": side("ours", []), "theirs": side("theirs", [], Left(records=6, keys=5))}
    with pytest.raises(RuntimeError, match="theirs has left"):
        measure(sides, rounds=1, expected=EXPECTED)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_left_in_files_counts_records_and_their_keys(tmp_path: Path, codec: Codec) -> None:
    """What is not clean yet has every record, and the keys that were drawn."""
    log, keys = write_log(tmp_path / "t-0", Case(records=3_000, value_bytes=90, keys=1_000, codec=codec))
    assert 900 < keys < 1_000
    assert left_in(log.directory.glob("*.log")) == Left(records=3_000, keys=keys)
    log.close(clean=False)


def test_cleaning_here_leaves_one_record_of_every_key_and_the_log_as_it_was(tmp_path: Path) -> None:
    """What is cleaned is cleaned again in the next round."""
    log, keys = write_log(tmp_path / "t-0", Case(records=3_000, value_bytes=90, keys=1_000, codec=Codec.NONE))
    assert [clean_here(log).left for _ in range(2)] == [Left(records=keys, keys=keys)] * 2
    assert left_in(log.directory.glob("*.log")) == Left(records=3_000, keys=keys)
    log.close(clean=False)


def test_cleaned_up_to_is_of_the_topic_named(tmp_path: Path) -> None:
    """Topics of other rounds have names that begin alike."""
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert cleaned_up_to(checkpoint, "t-1") == 0
    checkpoint.write_text("0\n2\nt-11 0 7\nt-1 0 30\n")
    assert cleaned_up_to(checkpoint, "t-1") == 30
