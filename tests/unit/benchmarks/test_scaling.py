"""The figures of a cluster that is scaled, of acknowledgements whose times are known."""

from array import array

import pytest

from benchmarks.scaling import Written, longest_silence, p99_ms


def written(*acknowledgements: tuple[int, float, float]) -> Written:
    """Return what a producer notes of (partition, sent, acknowledged), in the order of acknowledgement."""
    partitions, sent_s, acknowledged_s = zip(*acknowledgements, strict=True)
    return Written(
        array("l", partitions),
        array("q", range(len(partitions))),
        array("d", sent_s),
        array("d", acknowledged_s),
        errors=[],
        produced=[len(partitions)] * 2,
    )


def test_longest_silence_is_of_one_partition_and_counts_where_it_ends() -> None:
    """A silence that the change has caused may have begun before it; another partition's record ends none."""
    noted = written((0, 0.0, 1.0), (1, 0.0, 1.1), (1, 1.0, 1.9), (0, 1.0, 2.5), (1, 2.0, 9.0))
    assert longest_silence(noted, 2.0, 3.0) == (pytest.approx(1.5), 0)
    assert longest_silence(noted, 3.0, 9.0) == (pytest.approx(7.1), 1)
    assert longest_silence(noted, 5.0, 6.0) == (0.0, -1)


def test_p99_is_of_the_records_that_were_acknowledged_in_the_time() -> None:
    """Those before the change are what it is compared with."""
    noted = written(*((0, 1.0, 1.0 + delay / 100) for delay in range(1, 100)), (0, 0.0, 50.0))
    assert p99_ms(noted, 0.0, 10.0) == pytest.approx(990, abs=5)
