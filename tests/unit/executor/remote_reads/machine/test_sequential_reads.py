"""Which reads go on where an earlier one has ended."""

from sparklog.executor.remote_reads.machine.sequential_reads import SequentialReads


def test_read_that_begins_where_another_has_ended_goes_on_from_it() -> None:
    """Two readers at different places are both seen, also when the same read is made twice."""
    reads = SequentialReads()
    assert reads.read("p", 0, 10) == 0
    assert reads.read("p", 10, 20) == 1
    assert reads.read("p", 500, 510) == 0
    assert reads.read("p", 10, 20) == 1
    assert reads.read("p", 20, 30) == 2
    assert reads.read("q", 10, 20) == 0


def test_reads_are_forgotten_in_the_order_of_their_ends() -> None:
    """What is remembered is bounded, however many readers come."""
    reads = SequentialReads()
    reads.read("p", 0, 1)
    for number in range(4_096):
        reads.read("other", number * 10, number * 10 + 5)
    assert reads.read("p", 1, 2) == 0
    assert reads.read("other", 15, 16) == 1
