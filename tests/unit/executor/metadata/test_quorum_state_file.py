"""The file in which a voter keeps its vote."""

from pathlib import Path
from uuid import UUID

import pytest

from sparklog.executor.metadata.machine.quorum_voter import NO_ELECTION, ElectionState
from sparklog.executor.metadata.quorum_state_file import QUORUM_STATE, read_election, write_election
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode, KafkaError

VOTED = VoterKey(1_000_000, UUID(int=901))


@pytest.mark.parametrize(
    "election",
    [
        NO_ELECTION,
        ElectionState(7, VOTED),
        ElectionState(7, VOTED, 1_000_000),
        ElectionState(9, None, 1_000_000),
    ],
)
def test_election_that_was_written_is_read_again(tmp_path: Path, election: ElectionState) -> None:
    """A vote that a restart forgets could be given twice."""
    write_election(tmp_path, ElectionState(1))
    write_election(tmp_path, election)
    assert read_election(tmp_path) == election


def test_election_lies_in_kafkas_form(tmp_path: Path) -> None:
    """Kafka's own tools read the file."""
    write_election(tmp_path, ElectionState(7, VOTED))
    assert (tmp_path / QUORUM_STATE).read_text() == (
        '{"leaderId":-1,"leaderEpoch":7,"votedId":1000000,'
        '"votedDirectoryId":"AAAAAAAAAAAAAAAAAAADhQ","data_version":1}'
    )


def test_election_of_a_new_directory_is_none(tmp_path: Path) -> None:
    """A directory that has never voted is no error."""
    assert read_election(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"leaderId":-1,"leaderEpoch":7,"votedId":-1,"data_version":0}',
        '{"leaderId":-1,"leaderEpoch":"7","votedId":-1,"data_version":1}',
        '{"leaderId":-1,"leaderEpoch":-7,"votedId":-1,"data_version":1}',
        '{"leaderId":-1,"leaderEpoch":7,"votedId":3,"votedDirectoryId":"x","data_version":1}',
        '{"leaderId":-1,"leaderEpoch":7,"votedId":3,"data_version":1}',
        '{"leaderEpoch":7,"votedId":-1,"data_version":1}',
    ],
)
def test_election_that_cannot_be_read_stops_the_broker_by_name(tmp_path: Path, content: str) -> None:
    """Going on as if nothing had been voted would allow a second vote."""
    (tmp_path / QUORUM_STATE).write_text(content)
    with pytest.raises(KafkaError, match=QUORUM_STATE) as caught:
        read_election(tmp_path)
    assert caught.value.error_code is ErrorCode.kafka_storage_error
