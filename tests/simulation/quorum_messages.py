"""What driver and brokers say to each other about the metadata log; the machines' own types, no bytes."""

from typing import NamedTuple
from uuid import UUID

from sparklog.driver.controller.machine.unclean_recovery import LogQuestion
from sparklog.driver.controller.quorum.machine.candidate import AnnouncedBroker
from sparklog.executor.metadata.machine.quorum_voter import VoteRequest
from sparklog.node.metadata_log.machine.voter_set import VoterKey
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tests.simulation.metadata_copy import Reading


class Announcement(NamedTuple):
    """A broker says that it is there (AddRaftVoter)."""

    broker: AnnouncedBroker


class AskLogEnd(NamedTuple):
    """How far does a broker's copy reach (ListOffsets)?"""


class AskLogEnds(NamedTuple):
    """How far do a broker's logs reach (ListOffsets, of partitions that need not be led)?"""

    question: LogQuestion


class CopyFetch(NamedTuple):
    """A candidate copies (Fetch without an epoch)."""

    offset: Offset
    last_epoch: LeaderEpoch | None


class Vote(NamedTuple):
    """A candidate asks for a vote."""

    request: VoteRequest


class BeginEpoch(NamedTuple):
    """A leader says that it leads (BeginQuorumEpoch)."""

    cluster_id: str
    leader_id: BrokerId
    leader_epoch: LeaderEpoch
    voter_id: BrokerId
    voter_directory_id: UUID


class MetadataFetch(NamedTuple):
    """A broker asks for what follows `offset`, and so says what it has on its disk."""

    key: VoterKey
    broker_epoch: BrokerEpoch | None
    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: LeaderEpoch | None
    high_watermark: Offset
    wait_ms: int
    """How long it may be held."""


class MetadataFetched(NamedTuple):
    """The answer, with what the answerer knows of the leader."""

    reading: Reading
    leader_id: BrokerId | None
    leader_epoch: LeaderEpoch | None
    high_watermark: Offset | None


def refused(error_code: ErrorCode) -> MetadataFetched:
    """Return what somebody answers who does not lead."""
    return MetadataFetched(Reading(error_code), None, None, None)
