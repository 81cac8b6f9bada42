"""`quorum-state`: the durable state of a voter, as one JSON object beside the metadata log.

    {"leaderId":-1,"leaderEpoch":2,"votedId":1000000,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}

The names and -1 for no broker are Kafka's (QuorumStateData, version 1). Rule kept: the file is replaced whole
and fsynced, so that after a crash it has either the old or the new content.

Beside it lies, as long as it is so, an empty file of ours that says that the log lacks records which this
replica had on its disk: recovery has cut them off, and another start would see nothing of it.
"""

import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from sparklog.executor.metadata.machine.quorum_voter import ElectionState
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.node.storage.files import decode_uuid, encode_uuid, replace_file, storage_errors, sync_directory
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import or_minus_one, unless_minus_one

QUORUM_STATE: Final = "quorum-state"
LACKS_RECORDS: Final = ".sparklog_lacks_records"
_DATA_VERSION: Final = 1
_NOBODY: Final = -1


def read_election(directory: Path) -> ElectionState | None:
    """Return the state of the voter in `directory`, None without a file.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR: the file cannot be read, or is incomplete. A voter without it
            could vote twice in an epoch.
    """
    path = directory / QUORUM_STATE
    try:
        state = json.loads(path.read_bytes())
        if state["data_version"] != _DATA_VERSION:
            raise ValueError(f"data_version is {state['data_version']}, not {_DATA_VERSION}")
        voted_id, leader_id = _number(state, "votedId"), _number(state, "leaderId")
        voted = None
        if voted_id != _NOBODY:
            voted = VoterKey(voted_id, decode_uuid(state["votedDirectoryId"]))
        return ElectionState(_number(state, "leaderEpoch"), voted, unless_minus_one(leader_id))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{path} cannot be read ({error!r}): without it this broker does not know whom it voted for. "
            "If its disk is lost, remove the whole data directory",
        ) from error


def write_election(directory: Path, election: ElectionState) -> None:
    """Write the state of the voter in `directory`; it is on the disk on return.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR: the former file still exists.
    """
    voted = election.voted or VoterKey(_NOBODY, UUID(int=0))
    content = {
        "leaderId": or_minus_one(election.leader_id),
        "leaderEpoch": election.leader_epoch,
        "votedId": voted.node_id,
        "votedDirectoryId": encode_uuid(voted.directory_id),
        "data_version": _DATA_VERSION,
    }
    path = directory / QUORUM_STATE
    with storage_errors(f"write {path}"):
        is_new = not path.exists()
        replace_file(path, json.dumps(content, separators=(",", ":")).encode())
        if is_new:
            sync_directory(directory.parent)


def lacks_records(directory: Path) -> bool:
    """Return whether the log in `directory` is known to be shorter than before."""
    return (directory / LACKS_RECORDS).exists()


def write_lacks_records(directory: Path, lacks: bool) -> None:
    """Write whether the log in `directory` is shorter than before; it is on the disk on return.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    path = directory / LACKS_RECORDS
    with storage_errors(f"write {path}"):
        if lacks:
            replace_file(path, b"")
        else:
            path.unlink(missing_ok=True)
            sync_directory(directory)


def _number(state: dict[str, Any], name: str) -> int:
    number = state[name]
    if not isinstance(number, int) or number < _NOBODY:
        raise ValueError(f"{name} is {number!r}")
    return number
