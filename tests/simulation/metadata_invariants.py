"""What must always be true of the metadata and its quorum, one class an idea; design part 5."""

from collections import Counter
from typing import TYPE_CHECKING

from sparklog.driver.controller.quorum.machine.candidate import BecomeLeader
from sparklog.executor.metadata.machine.quorum_voter import QuorumAnswer, VoteRequest
from sparklog.node.metadata.image import MetadataImage, PartitionRegistration
from sparklog.node.metadata_log.machine.voter_set import VoterKey, VoterSet
from sparklog.protocol.types import LeaderEpoch, Offset, TopicIdPartition

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.controller_process import ControllerProcess
    from tests.simulation.observer import Observer


from tests.simulation.invariant import Invariant


class MetadataImagesAgree(Invariant):
    """Who has replayed the same offset has the same image, and only what is committed is replayed."""

    def image_replayed(self, broker: "BrokerProcess", image: MetadataImage) -> None:
        assert image.offset is not None
        if image != self.world.metadata.images.get(image.offset):
            self.fail(f"{broker.name}'s image at offset {image.offset} is not the controller's")


class SnapshotAgreement(Invariant):
    """What a snapshot says is what the log up to its offset says."""

    def snapshot_loaded(self, broker: "BrokerProcess", image: MetadataImage) -> None:
        assert image.offset is not None
        if image != self.world.metadata.images.get(image.offset):
            self.fail(f"{broker.name}'s snapshot at offset {image.offset} is not what was committed")


class OneVotePerEpoch(Invariant):
    """A voter, that is a directory, votes for one candidate in an epoch."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._votes: dict[tuple[VoterKey, LeaderEpoch], VoterKey] = {}

    def voted(self, key: VoterKey, request: VoteRequest, answer: QuorumAnswer) -> None:
        if request.pre_vote or not answer.vote_granted:
            return
        known = self._votes.setdefault((key, request.candidate_epoch), request.candidate)
        if known != request.candidate:
            self.fail(f"{key} votes for two candidates in epoch {request.candidate_epoch}")


class SingleControllerPerEpoch(Invariant):
    """At most one driver leads the metadata log in an epoch."""

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._leaders: dict[LeaderEpoch, VoterKey] = {}

    def driver_won(self, driver: "ControllerProcess", lead: BecomeLeader) -> None:
        known = self._leaders.setdefault(lead.leader_epoch, driver.key)
        if known != driver.key:
            self.fail(f"two drivers lead the metadata log in epoch {lead.leader_epoch}")


class ControllerHasCommitted(Invariant):
    """A driver that leads has everything that was ever committed in the epochs before its own.

    One that learns late that it was elected may find that others have committed in newer epochs. Nobody
    listens to it any more.
    """

    def driver_won(self, driver: "ControllerProcess", lead: BecomeLeader) -> None:
        committed, copy = self.world.metadata, driver.copy
        earlier = [batch for batch in committed.batches.values() if batch.leader_epoch < lead.leader_epoch]
        end_offset = earlier[-1].last_offset + 1 if earlier else 0
        if copy.end_offset < end_offset:
            self.fail(
                f"{driver.name} leads in epoch {lead.leader_epoch} with metadata up to {copy.end_offset}, "
                f"committed is what is below {end_offset}"
            )
        for batch in copy.batches:
            known = committed.batches.get(batch.base_offset, batch)
            if known is not batch and known.leader_epoch < lead.leader_epoch:
                self.fail(f"{driver.name} leads with another batch at offset {batch.base_offset}")


class MetadataMajority(Invariant):
    """What is committed of the metadata is on the disks of a majority of the voters."""

    def metadata_committed(self, driver: "ControllerProcess", voters: VoterSet, end_offset: Offset) -> None:
        copy = driver.copy
        last = copy.batches[copy.index_of(end_offset) - 1]
        holders = []
        for key in voters.keys:
            disk = self.world.disks[key.node_id]
            theirs = disk.metadata_of(key.directory_id)
            if theirs.flushed_offset < end_offset:
                if disk.lacks_metadata:
                    # It has said so when it had it, and knows that it has lost some of it.
                    holders.append(key)
                continue
            number = theirs.index_of(last.base_offset)
            if end_offset <= theirs.start_offset or theirs.batches[number] is last:
                holders.append(key)
        if not 2 * len(holders) > len(voters):
            self.fail(
                f"{driver.name} takes what is below {end_offset} for committed, which brokers "
                f"{sorted(key.node_id for key in holders)} have, of {len(voters)} voters"
            )


class CommittedMetadataStays(Invariant):
    """What was committed of the metadata is never replaced."""

    def metadata_committed(self, driver: "ControllerProcess", voters: VoterSet, end_offset: Offset) -> None:
        committed, copy = self.world.metadata, driver.copy
        for batch in reversed(copy.batches[: copy.index_of(end_offset)]):
            known = committed.batches.get(batch.base_offset)
            if known is batch:
                break
            if known is not None or batch.base_offset < committed.end_offset:
                self.fail(f"{driver.name} commits another batch at offset {batch.base_offset}")


class InactiveBrokersHaveLeft(Invariant):
    """A broker that is fenced, or shuts down, leads nothing and is in no ISR, once the controller rests.

    Unless it is the last that was in sync, without eligible leader replicas (KIP-966).
    """

    def controller_rests(self, image: MetadataImage) -> None:
        away = {
            broker_id
            for broker_id, registration in image.brokers.items()
            if registration.fenced or registration.in_controlled_shutdown
        }
        for topic in image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                if partition.leader is None and len(partition.isr) <= 1:
                    continue
                if not away.isdisjoint(partition.isr):
                    self.fail(
                        f"of the ISR {partition.isr} with leader {partition.leader} {sorted(away)} are away",
                        TopicIdPartition(topic.topic_id, number),
                    )


class BalanceKeepsReplicas(Invariant):
    """No move of the controller's own takes a replica away without another in its place.

    Where no administrator asks for another number of replicas.
    """

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        if before is None or not self.world.balances_alone:
            return
        if len(after.target_replicas) != len(before.target_replicas):
            self.fail(f"the replicas {before.target_replicas} become {after.target_replicas}", key)


class BalanceEnds(Invariant):
    """No partition is moved again and again while no broker comes or goes, and no administrator moves any."""

    _MOST_MOVES = 6

    def __init__(self, world: "Observer") -> None:
        super().__init__(world)
        self._brokers: object = None
        self._moves: Counter[TopicIdPartition] = Counter()

    def partition_decided(
        self, key: TopicIdPartition, before: PartitionRegistration | None, after: PartitionRegistration
    ) -> None:
        if before is None or before.target_replicas == after.target_replicas:
            return
        if not self.world.balances_alone:
            return
        brokers = self.world.metadata.image.brokers
        if brokers != self._brokers:
            self._brokers = brokers
            self._moves.clear()
        self._moves[key] += 1
        if self._moves[key] > self._MOST_MOVES:
            self.fail(f"{self._moves[key]} moves, the last one to {after.target_replicas}", key)
