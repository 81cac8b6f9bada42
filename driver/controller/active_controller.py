"""The parts of a controller that leads, put together when an election is won.

    request -> Controller decides -> CommitQueue appends -> brokers fetch (MetadataFetches)
    -> QuorumLeader counts -> the high watermark moves -> CommitQueue publishes and answers

Everything here lives on the controller's event loop.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Final, Protocol

from sparklog.driver.controller.api.table import controller_handlers
from sparklog.driver.controller.broker_liveness import BrokerLiveness
from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.errors import DeposedError
from sparklog.driver.controller.load_reports import LoadReports
from sparklog.driver.controller.machine.cluster_state import CONTROLLER_ID
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.driver.controller.machine.unclean_recovery import LogQuestion
from sparklog.driver.controller.machine.voting_brokers import voting_brokers
from sparklog.driver.controller.metadata_fetches import MetadataFetches
from sparklog.driver.controller.metadata_log import MetadataLog
from sparklog.driver.controller.quorum.broker_channels import BrokerChannels
from sparklog.driver.controller.quorum.description import QuorumDescription, describe_quorum
from sparklog.driver.controller.quorum.machine.candidate import (
    AnnouncedBroker,
    BecomeLeader,
    ExpectedBroker,
    ForeignClusterError,
    first_voters,
)
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.driver.controller.quorum.requests import (
    begin_quorum_epoch_request,
    end_quorum_epoch_request,
    log_end_request,
    log_ends_of,
)
from sparklog.driver.monitoring.telemetry_intake import TelemetryIntake
from sparklog.node.clocks import monotonic_ms, wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.endpoints import Endpoint
from sparklog.node.loop.garbage import without_collections
from sparklog.node.metadata.cluster_size import ClusterSize
from sparklog.node.metadata.image import EMPTY_IMAGE, MetadataImage
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.metadata_log.machine.control_records import kraft_version, leader_change, voters_record
from sparklog.node.metadata_log.machine.snapshot_batches import MetadataSnapshot
from sparklog.node.metadata_log.machine.voter_set import VoterKey, VoterSet
from sparklog.node.responses.reachability import is_any_live
from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerEpoch, BrokerId, LeaderEpoch, Offset

END_EPOCH_TIMEOUT_S: Final = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControlledCluster:
    cluster_id: str
    config: BrokerConfig
    endpoints: Sequence[Endpoint]
    """Endpoints of the driver's listeners; brokers connect to the first."""
    expected_brokers: tuple[ExpectedBroker, ...]
    """The brokers with which the driver has started the cluster; more may register."""
    initial_scram_users: Sequence[UserScramCredentialRecord] = ()
    is_new_application: bool = True
    """Whether the application has had no controller before this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WonElection:
    lead: BecomeLeader
    announced: tuple[AnnouncedBroker, ...]
    controller: Controller
    """The controller at the end of the log that this driver leads."""


class ControllerHost(Protocol):
    def committed(self, image: MetadataImage, departure_reasons: Mapping[BrokerId, str]) -> None: ...

    def saved(self, metadata: MetadataSnapshot) -> None:
        """Note a committed state with all that its snapshot needs."""

    def fail(self, error: BaseException) -> None: ...


class ActiveController:
    """This driver as leader of the metadata log and controller of the cluster. Order: `begin` first."""

    def __init__(
        self,
        cluster: ControlledCluster,
        log: MetadataLog,
        won: WonElection,
        channels: BrokerChannels,
        intake: TelemetryIntake,
        load_reports: LoadReports,
        host: ControllerHost,
    ) -> None:
        cluster_id, config, lead = cluster.cluster_id, cluster.config, won.lead
        self._initial_scram_users = cluster.initial_scram_users
        self._expected_brokers = cluster.expected_brokers
        self._started_size = ClusterSize.of(
            {each.node_id: each.rack for each in cluster.expected_brokers}, config.sparklog_rack_names
        )
        self._is_new_application = cluster.is_new_application
        self.surplus: Mapping[BrokerId, int] = {}
        """The brokers beyond the cluster's size, each with the number of replicas still on it."""
        self.drained: frozenset[BrokerId] = frozenset()
        """The surplus brokers that may end: they have no replica and no vote."""
        self.may_restart = False
        """Whether a broker that stays may start again: all of them, and the voters, are in sync."""
        self._emptied_at: dict[BrokerId, Offset] = {}
        """The end of the decisions when each of the surplus brokers was first found to be empty."""
        self._in_sync_at: Offset | None = None
        """The same for the moment since which all that stay are in sync; None while they are not."""
        self._rack_names = config.sparklog_rack_names
        self._members: tuple[object, object, frozenset[BrokerId]] = (None, None, frozenset())
        """The registrations, configurations and drained brokers by which voters were last wanted."""
        self._cluster_id = cluster_id
        self._log = log
        self._channels = channels
        self._endpoint = cluster.endpoints[0]
        self._lead = lead
        self._announced = {broker.key: broker for broker in won.announced}
        self._host = host
        self._load_reports = load_reports
        self._begin_quorum_epochs: set[asyncio.Task[None]] = set()
        self._log_questions: dict[BrokerId, asyncio.Task[None]] = {}
        self._next_decision: asyncio.Handle | None = None
        """The next decision without a request, in the next turn of the loop."""
        self._applied_bytes = 0
        self.image = EMPTY_IMAGE
        """The newest committed image; empty until the beginning of this epoch is committed."""
        self._any_live = asyncio.Event()
        """Set while a broker of `image` is not fenced."""
        self.controller = won.controller
        self.commit_queue = CommitQueue(
            self.controller,
            log,
            later=asyncio.get_running_loop().call_soon,
            on_append=self._appended,
            on_commit=self._committed,
            on_failure=host.fail,
        )
        self.broker_liveness = BrokerLiveness(
            config.inter_broker_listener, lambda: self.controller.image, self._broker_gone
        )
        self.quorum = QuorumLeader(
            lead.leader_epoch,
            lead.voters,
            log.log_end_offset,
            wanted_voters=first_voters(cluster.expected_brokers),
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            now_ms=monotonic_ms(),
        )
        self.fetches = MetadataFetches(
            cluster_id, log, self.quorum, self.controller, self.commit_queue, self._deposed
        )
        self.handlers = controller_handlers(
            cluster_id,
            config,
            self.controller,
            self.commit_queue,
            self.fetches,
            self.broker_liveness,
            self.quorum,
            lambda: self.image,
            self._any_live.wait,
            cluster.endpoints,
            intake.take,
        )

    @property
    def log_end_offset(self) -> Offset:
        return self._log.log_end_offset

    @property
    def snapshot_errors(self) -> int:
        """The number of snapshots of the metadata that could not be written."""
        return self._log.snapshot_taker.errors

    def begin(self) -> None:
        """Write the first records of the epoch, and announce the leader to the brokers."""
        lead, log = self._lead, self._log
        change = leader_change(CONTROLLER_ID, lead.voters.keys, lead.granting)
        self._replay_control(log.begin_epoch(lead.leader_epoch, change))
        if lead.forms_cluster:
            self._replay_control(log.append_control([kraft_version(), voters_record(lead.voters)]))
            self.quorum.voters_appended(lead.voters, log.log_end_offset)
        self.commit_queue.submit(
            self.controller.bootstrap(
                self._initial_scram_users, self._started_size, is_new_application=self._is_new_application
            ),
            lambda _: self._ready(),
        )
        for broker in self._announced.values():
            self._begin_quorum_epoch(broker)

    def broker_announced(self, broker: AnnouncedBroker) -> None:
        """Note a broker that has started, or that does not know yet that this driver leads.

        Raises:
            ForeignClusterError: it belongs to another cluster.
        """
        if broker.cluster_id not in (None, self._cluster_id):
            raise ForeignClusterError(broker, self._cluster_id)
        for key in [key for key in self._announced if key.node_id == broker.key.node_id]:
            del self._announced[key]
        self._announced[broker.key] = broker
        self._begin_quorum_epoch(broker)

    def tick(self) -> None:
        self._note_loads()
        self._decide_next()
        self._ask_for_logs()
        self.fetches.expire(monotonic_ms())
        self._want_voters()
        self._unregister_drained()
        self._note_surplus()
        voters = self.quorum.next_voters(self._announced.values(), monotonic_ms(), self.controller.leaving)
        if voters is not None:
            self._change_voters(voters)

    def _note_loads(self) -> None:
        report = self._load_reports.next(monotonic_ms(), wall_clock_ms())
        if report is None:
            return
        if report.disks is not None:
            self.controller.disks_reported(report.broker_id, report.disks)
        self.controller.traffic_reported(report.broker_id, report.traffic)

    def _note_surplus(self) -> None:
        """Note the surplus brokers, for other threads too, and those that may end by what is committed."""
        self.surplus = self.controller.surplus
        offset, committed = self.controller.image.end_offset, self.image.end_offset
        emptied = self.controller.emptied
        self._emptied_at = {each: self._emptied_at.get(each, offset) for each in emptied}
        voters = {key.node_id for key in self.quorum.voters.keys}
        self.drained = frozenset(each for each, at in self._emptied_at.items() if at <= committed) - voters
        if not emptied or not self.controller.is_in_sync:
            self._in_sync_at = None
        elif self._in_sync_at is None:
            self._in_sync_at = offset
        is_in_sync = self._in_sync_at is not None and self._in_sync_at <= committed
        self.may_restart = is_in_sync and self.quorum.are_voters_caught_up(monotonic_ms())

    def _want_voters(self) -> None:
        """Let the first broker of each rack vote, of those that registered too; drained ones leave last."""
        image = self.controller.image
        emptied = frozenset(each for each, held in self.controller.surplus.items() if not held)
        before = self._members
        if before[0] is image.brokers and before[1] is image.configs and before[2] == emptied:
            return
        self._members = (image.brokers, image.configs, emptied)
        expected = {each.node_id: each.rack for each in self._expected_brokers}
        racks = voting_brokers(image, expected, emptied, self._rack_names)
        self.quorum.want_voters(first_voters(starmap(ExpectedBroker, racks.items())))

    def _unregister_drained(self) -> None:
        if self.controller.surplus:
            voters = [key.node_id for key in self.quorum.voters.keys]
            decision = self.controller.unregister_drained(voters, monotonic_ms())
            if decision.records:
                self.decide(decision)

    def describe_quorum(self) -> QuorumDescription:
        return describe_quorum(self.quorum, self._log.log_end_offset, monotonic_ms())

    def decide(self, decision: ControllerResult) -> None:
        """Commit a decision that has no reply."""
        self.commit_queue.submit(decision, lambda _: None)

    @property
    def missing(self) -> str | None:
        """Return the unreachable voters in a sentence if the others are no majority; None otherwise."""
        if self.quorum.has_majority(monotonic_ms()):
            return None
        silent = sorted(self.quorum.voters.keys - self._announced.keys())
        return f"no majority of voters is in touch; missing: {', '.join(map(str, silent)) or 'none for long'}"

    async def end(self) -> None:
        """Resign: close the commit queue, and send EndQuorumEpoch to the voters that were announced to.

        Answers are waited for up to `END_EPOCH_TIMEOUT_S`.
        """
        self.commit_queue.close()
        if self._next_decision is not None:
            self._next_decision.cancel()
        for task in (*self._begin_quorum_epochs, *self._log_questions.values()):
            task.cancel()
        farewells = [
            self._channels.request(broker, end_quorum_epoch_request(self._cluster_id, self._log.leader_epoch))
            for broker in self._announced.values()
        ]
        try:
            async with asyncio.timeout(END_EPOCH_TIMEOUT_S):
                await asyncio.gather(*farewells, return_exceptions=True)
        except TimeoutError:
            logger.info("Some brokers did not acknowledge the end of the controller's epoch")
        await self.broker_liveness.close()
        await self._log.snapshot_taker.idle()

    def _ready(self) -> None:
        logger.info(
            "The controller leads cluster %s with leader epoch %d, metadata offset %d, voters %s",
            self._cluster_id,
            self._log.leader_epoch,
            self.quorum.high_watermark,
            ", ".join(str(key.node_id) for key in sorted(self.quorum.voters.keys)),
        )

    def _change_voters(self, voters: VoterSet) -> None:
        logger.info(
            "The voters change to brokers %s", ", ".join(str(key.node_id) for key in sorted(voters.keys))
        )
        try:
            self._replay_control(self._log.append_control([voters_record(voters)]))
        except KafkaError as error:
            self._host.fail(error)
            return
        self.quorum.voters_appended(voters, self._log.log_end_offset)
        self.fetches.schedule_progress()

    def _replay_control(self, last_offset: Offset) -> None:
        self.controller.replay((), last_offset, self._log.leader_epoch)

    def _appended(self) -> None:
        self.fetches.schedule_progress()
        if not self.controller.is_settled:
            self._schedule_decision()

    def _schedule_decision(self) -> None:
        if self._next_decision is None:
            self._next_decision = asyncio.get_running_loop().call_soon(self._decide_next)

    def _decide_next(self) -> None:
        """Make the decisions that need no request, one part in each turn of the loop."""
        if self._next_decision is not None:
            self._next_decision.cancel()
            self._next_decision = None
        with without_collections() as step:
            decision = self.controller.tick(monotonic_ms())
            if decision.records:
                self.decide(decision)
            step.lasting_count = len(decision.records)
        if decision.records or not self.controller.is_settled:
            self._schedule_decision()

    def _committed(self, image: MetadataImage) -> None:
        self.image = image
        if is_any_live(image):
            self._any_live.set()
        else:
            self._any_live.clear()
        self._note_surplus()
        self._host.committed(image, dict(self.controller.departure_reasons))
        log = self._log
        metadata = MetadataSnapshot(image, log.voters_before(image.end_offset), log.last_timestamp_ms)
        self._host.saved(metadata)
        log.snapshot_taker.applied(metadata, log.appended_bytes - self._applied_bytes)
        self._applied_bytes = log.appended_bytes

    def _broker_gone(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        self.decide(self.controller.broker_gone(broker_id, broker_epoch))

    def _ask_for_logs(self) -> None:
        """Ask brokers for the ends of their logs, with one question in flight for each."""
        for question in self.controller.log_questions(monotonic_ms()):
            broker_id = question.broker_id
            broker = next((each for each in self._announced.values() if each.key.node_id == broker_id), None)
            if broker is not None and broker_id not in self._log_questions:
                asking = self._ask_for_log(broker, question)
                self._log_questions[broker_id] = asyncio.get_running_loop().create_task(asking)

    async def _ask_for_log(self, broker: AnnouncedBroker, question: LogQuestion) -> None:
        try:
            response = await self._channels.request(broker, log_end_request(question.leader_epochs))
        except KafkaError as error:
            logger.info("%s did not report the ends of its logs; retrying: %s", broker.key, error)
        else:
            self.decide(
                self.controller.log_question_answered(question, log_ends_of(response), monotonic_ms())
            )
        finally:
            del self._log_questions[question.broker_id]

    def _deposed(self, key: VoterKey, leader_epoch: LeaderEpoch) -> None:
        if key in self._announced:
            self._host.fail(
                DeposedError(
                    f"another driver leads cluster {self._cluster_id} with leader epoch {leader_epoch}, this "
                    f"one has {self._log.leader_epoch}: only one application may use these log directories"
                )
            )

    def _begin_quorum_epoch(self, broker: AnnouncedBroker) -> None:
        task = asyncio.get_running_loop().create_task(self._send_begin_quorum_epoch(broker))
        self._begin_quorum_epochs.add(task)
        task.add_done_callback(self._begin_quorum_epochs.discard)

    async def _send_begin_quorum_epoch(self, broker: AnnouncedBroker) -> None:
        request = begin_quorum_epoch_request(
            self._cluster_id, broker.key, self._log.leader_epoch, self._endpoint.host, self._endpoint.port
        )
        try:
            response = await self._channels.request(broker, request)
            for topic in response.topics:
                for partition in topic.partitions:
                    if partition.leader_epoch > self._log.leader_epoch:
                        self._deposed(broker.key, partition.leader_epoch)
        except KafkaError as error:
            logger.info(
                "%s did not acknowledge its controller, and will announce itself again: %s", broker.key, error
            )
