"""The names of objects."""

import pytest

from sparklog.node.remote_log.machine.names import leader_epoch_of, producers_file_name, segment_file_name


def test_leader_epoch_is_read_from_the_names_of_segments_and_producers() -> None:
    """By it a collector of orphans leaves the objects of later leaders alone."""
    assert leader_epoch_of("segments/t-id/0/" + segment_file_name(2**40, 12, "0a0b-1")) == 12
    assert leader_epoch_of("producers/id/0/" + producers_file_name(7, 3, "0a0b-1")) == 3


@pytest.mark.parametrize("name", ["", "a", "1-2-3", "x" * 20 + "-" + "1" * 10 + "-u", "segments/t/0/"])
def test_other_names_have_no_leader_epoch(name: str) -> None:
    """Objects that this program has not written are not touched."""
    assert leader_epoch_of(name) is None
