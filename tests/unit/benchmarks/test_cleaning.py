"""A side that leaves keys out cleans faster: both must have left the same."""

from pathlib import Path

import pytest

from benchmarks.cleaning import (
    CASES,
    Case,
    Left,
    Result,
    clean_here,
    cleaned_up_to,
    left_in,
    round_of,
    write_log,
)
from sparklog.protocol.records.codecs import Codec

EXPECTED = Left(records=5, keys=5)


def test_round_is_rates_by_clock_and_by_processor_time() -> None:
    """The second says more on a machine that others use, too."""
    case = "cleaning-100"
    run = round_of(case, "ours", lambda: Result(4.0, 2.0, 130.0, EXPECTED), 8 * 2**20, EXPECTED)
    assert [(figure.unit, figure.value) for figure in run()] == [("MiB/s", 2), ("MiB/s", 4), ("MiB", 130)]
    assert all(figure.case.startswith(CASES[case].description) for figure in run())


def test_round_of_a_side_that_leaves_something_else_is_refused() -> None:
    """Its rate would count for another work."""
    left = Left(records=6, keys=5)
    run = round_of("cleaning-100", "theirs", lambda: Result(1.0, 1.0, 1.0, left), 1, EXPECTED)
    with pytest.raises(RuntimeError, match="theirs has left"):
        run()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_left_in_files_counts_records_and_their_keys(tmp_path: Path, codec: Codec) -> None:
    """What is not clean yet has every record, and the keys that were drawn."""
    log, keys = write_log(
        tmp_path / "t-0", Case("small", records=3_000, value_bytes=90, keys=1_000, codec=codec)
    )
    assert 900 < keys < 1_000
    assert left_in(log.directory.glob("*.log")) == Left(records=3_000, keys=keys)
    log.close(clean=False)


def test_cleaning_here_leaves_one_record_of_every_key_and_the_log_as_it_was(tmp_path: Path) -> None:
    """What is cleaned is cleaned again in the next round."""
    log, keys = write_log(
        tmp_path / "t-0", Case("small", records=3_000, value_bytes=90, keys=1_000, codec=Codec.NONE)
    )
    assert [clean_here(log).left for _ in range(2)] == [Left(records=keys, keys=keys)] * 2
    assert left_in(log.directory.glob("*.log")) == Left(records=3_000, keys=keys)
    log.close(clean=False)


def test_cleaned_up_to_is_of_the_topic_named(tmp_path: Path) -> None:
    """Topics of other rounds have names that begin alike."""
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    assert cleaned_up_to(checkpoint, "t-1") == 0
    checkpoint.write_text("0\n2\nt-11 0 7\nt-1 0 30\n")
    assert cleaned_up_to(checkpoint, "t-1") == 30
