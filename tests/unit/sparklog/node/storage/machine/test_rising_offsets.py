"""The first of many offsets, without looking at all of them."""

from random import Random

from sparklog.node.storage.machine.rising_offsets import RisingOffsets


def test_first_is_the_smallest_whatever_goes_in_which_order() -> None:
    """Transactions end in any order; what is stable ends at the first that is open."""
    random = Random(7)
    offsets, expected = RisingOffsets(), set[int]()
    for offset in range(3_000):
        offsets.add(offset)
        expected.add(offset)
        while expected and random.random() < 0.49:
            gone = random.choice((min(expected), max(expected), random.choice(sorted(expected))))
            offsets.discard(gone)
            expected.discard(gone)
        assert offsets.first == min(expected, default=None)
        assert len(offsets) == len(expected)


def test_those_behind_one_that_stays_are_let_go_of() -> None:
    """A transaction that hangs for a day must not keep what a million others have been."""
    offsets = RisingOffsets()
    offsets.add(0)
    for offset in range(1, 100_000):
        offsets.add(offset)
        offsets.discard(offset)
    assert offsets.first == 0
    assert len(offsets._order) < 100
