"""One seed: applications in turn over one store, their faults, a calm, and the loss of all disks."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from sparklog.executor.tiering.machine import partition_tier
from sparklog.executor.tiering.machine.events import (
    PartitionIdentity,
    StopRequested,
    SwapManifest,
    TierConfig,
)
from sparklog.executor.tiering.machine.partition_tier import PartitionTier
from sparklog.node.remote_log.machine.manifest import Manifest, RemoteSegment
from sparklog.node.remote_log.machine.names import manifest_name
from sparklog.protocol.types import Offset
from tests.simulation.planted_bug import Replacement, replaced
from tests.simulation.scheduler import Scheduler
from tests.simulation.tiering.application import Application
from tests.simulation.tiering.broker import Broker
from tests.simulation.tiering.invariants import LAG_SLACK_MS, Check, Violation, records_in
from tests.simulation.tiering.local_log import Record, commits
from tests.simulation.tiering.object_store import FaultyStore
from tests.simulation.tiering.truth import Truth

IDENTITY: Final = PartitionIdentity("topic", UUID(int=9), 0)
MAX_LAG_MS: Final = 20_000
FAULTS_MS: Final = 240_000
HEALING_MS: Final = 90_000
"""Longer than any pause between retries, and a frozen broker."""
CALM_MS: Final = 60_000
TICK_MS: Final = 1_000
FIRST_LISTING_MS: Final = 15_000
LISTING_INTERVAL_MS: Final = 45_000
"""Sooner than in production, so that a deposed leader looks for orphans, too."""
PERIOD_MS: Final = 15_000
WITH_PERIODS: Final = frozenset({2, 8, 10, 11})
"""Of seeds by twelve: those whose topic is a table with partitions by time."""
WITH_IDLE_OUTAGES: Final = frozenset({5})
"""Of seeds by twelve: those in which nothing is written during some outages of the store."""
IDLE_MS: Final = 60_000
LEADER_EPOCHS_SKIPPED: Final = 1_000
STORY_LENGTH: Final = 40


@dataclass(slots=True)
class Outcome:
    seed: int
    violation: Violation | None = None
    story: list[str] = field(default_factory=list)
    trace_hash: str = ""
    event_count: int = 0
    elections: int = 0
    faults: int = 0
    swaps: int = 0
    committed: int = 0
    applications: int = 0
    adopted: int = 0
    losses: int = 0
    served_at_once: int = 0
    """Leaders that were whole before they had read the manifest."""

    def report(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.violation}", *self.story])


class World:
    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.scheduler: Final = Scheduler(seed)
        self.chance: Final = self.scheduler.random
        self.after: Final = self.scheduler.after
        self.story: Final[deque[str]] = deque(maxlen=STORY_LENGTH)
        self._trace: Final = trace
        self.manifest_name: Final = manifest_name(IDENTITY.topic_id, IDENTITY.partition)
        self.elections = self.faults = self.swaps = self.served_at_once = 0
        self.config = self._first_config(PERIOD_MS if seed % 12 in WITH_PERIODS else None)
        self.allows_unclean: Final = self.chance.random() < 0.5
        self.store: Final = FaultyStore(self.scheduler)
        self.truth: Final = Truth(self)
        self.check: Final = Check(self)
        self.applications = [Application(self, 1, 0)]
        self.is_calm = False
        self._takes_records = self._begins_transactions = True
        self._has_idle_outages: Final = seed % 12 in WITH_IDLE_OUTAGES
        self._idle_until_ms = 0
        self._numbers = self._transactions = self._tiers = 0

    def _first_config(self, period_ms: int | None) -> TierConfig:
        chance = self.chance
        compacts = chance.random() < 0.25
        retains = not compacts and chance.random() < 0.4
        by_size = chance.random() < 0.5
        return TierConfig(
            segment_bytes=chance.choice([400, 1_200]),
            retention_ms=chance.choice([60_000, 120_000]) if retains and not by_size else None,
            retention_bytes=chance.choice([500, 1_500]) if retains and by_size else None,
            max_lag_ms=MAX_LAG_MS,
            deletes=not compacts,
            compacts=compacts,
            period_ms=None if compacts else period_ms,
        )

    # --- for the others -------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.scheduler.now_ms

    @property
    def application(self) -> Application:
        """Return the one that has the store."""
        return self.applications[-1]

    @property
    def brokers(self) -> list[Broker]:
        return [broker for application in self.applications for broker in application.brokers]

    def note(self, text: str) -> None:
        line = f"{self.now_ms:>8} {text}"
        self.story.append(line)
        self.scheduler.note(text)
        if self._trace is not None:
            self._trace(line)

    def new_tier(self, broker: Broker) -> PartitionTier:
        self._tiers += 1
        if broker.is_whole:
            self.served_at_once += 1
            self.check.leads_as_whole(broker)
        # Each failure is an outage: a leader that has served without its tier is what has to be survived.
        return PartitionTier(
            IDENTITY,
            broker.leader_epoch,
            broker.application.owner_epoch,
            self.config,
            f"{self._tiers:08x}",
            is_whole=broker.is_whole,
            outage_ms=0,
        )

    def records_of(self, segments: Sequence[RemoteSegment]) -> dict[Offset, Record] | None:
        """Return the records of remote segments; None if an object is missing."""
        found: dict[Offset, Record] = {}
        for segment in segments:
            stored = self.store.objects.get(segment.name)
            if stored is None:
                return None
            found.update(records_in(segment, stored.content))
        return found

    def is_stored(self, manifest: Manifest | None) -> bool:
        stored = self.store.objects.get(self.manifest_name)
        return stored is not None and stored.content == manifest

    def swap(self, broker: Broker, tier: PartitionTier, effect: SwapManifest) -> Any:
        stored = self.store.objects.get(self.manifest_name)
        version = self.store.swap(self.manifest_name, effect.manifest, effect.version)
        self.swaps += 1
        self.note(
            f"manifest of {broker} in leader epoch {tier.leader_epoch}: "
            f"[{effect.manifest.log_start_offset}, {effect.manifest.end_offset})"
        )
        self.check.swapped(broker, tier, None if stored is None else stored.content, effect.manifest)
        return version

    def delete(self, broker: Broker, name: str) -> None:
        self.check.deleting(broker, name)
        self.store.delete(name)

    # --- what happens ---------------------------------------------------------------------------

    def run(self) -> None:
        self.application.elect()
        self._tick()
        self._fetches()
        self._produces()
        self.after(self.chance.randint(2_000, 8_000), self._fault)
        self._run_until(FAULTS_MS)
        self._heal()
        self._run_until(FAULTS_MS + HEALING_MS)
        self._begins_transactions = False
        self._end_transactions()
        self._run_until(FAULTS_MS + HEALING_MS + MAX_LAG_MS + LAG_SLACK_MS)
        self.is_calm = True
        self._run_until(self.now_ms + CALM_MS)
        self._end_of_a_stop()
        self._lose_all_disks()

    def _run_until(self, time_ms: int) -> None:
        due: list[bool] = []
        self.after(time_ms - self.now_ms, due.append, True)
        while not due:
            self.scheduler.step()

    def _tick(self) -> None:
        for broker in self.brokers:
            broker.tick()
        if self.is_calm:
            self.check.lag()
        application = self.application
        if application.leader is None or not application.leader.is_alive:
            application.elect(unclean=self.allows_unclean and self.chance.random() < 0.1)
        self.after(TICK_MS, self._tick)

    def _fetches(self) -> None:
        for broker in self.brokers:
            if broker.is_running and self.chance.random() < 0.7:
                broker.fetch()
        self.after(self.chance.randint(50, 900), self._fetches)

    def _produces(self) -> None:
        leaders = [
            broker
            for broker in self.brokers
            if broker.is_running and broker.tier is not None and broker.tier.may_serve
        ]
        if leaders and self._takes_records and self.now_ms >= self._idle_until_ms:
            self._append_to(self.chance.choice(leaders))
        pause_ms = self.chance.choice([100, 600, 3_000])
        # In the calm segments are not rolled as soon as records have to be in the tier.
        self.after(10 * pause_ms if self.is_calm else pause_ms, self._produces)

    def _append_to(self, leader: Broker) -> None:
        chance, log = self.chance, leader.log
        open_transactions = log.open_transactions()
        if open_transactions and chance.random() < 0.3:
            self._end(leader, chance.choice(open_transactions))
        transaction = None
        if open_transactions and chance.random() < 0.5:
            transaction = chance.choice(open_transactions)
        elif self._begins_transactions and chance.random() < 0.1:
            self._transactions += 1
            transaction = self._transactions
        for _ in range(chance.randint(1, 4)):
            log.append(self._record(leader, transaction))
        leader.advance_high_watermark()

    def _end(self, leader: Broker, transaction: int) -> None:
        leader.log.append(
            replace(self._record(leader, transaction), size_bytes=1, is_commit=commits(transaction))
        )

    def _end_transactions(self) -> None:
        leader = self.application.leader
        if leader is None or leader.tier is None:
            self.check.fail("Liveness", "no leader has come back")
            return
        for transaction in leader.log.open_transactions():
            self._end(leader, transaction)

    def _record(self, leader: Broker, transaction: int | None) -> Record:
        self._numbers += 1
        return Record(
            self._numbers,
            leader.leader_epoch,
            self.chance.randint(0, 8),
            self.chance.randint(2, 8),
            self.now_ms,
            transaction,
        )

    # --- faults ---------------------------------------------------------------------------------

    def _fault(self) -> None:
        if self.now_ms >= FAULTS_MS - 1_000:
            return
        self.faults += 1
        faults = [
            (self._kill, 4),
            (self._power_cut, 2),
            (self._power_cut_of_all, 2),
            (self._freeze, 3),
            (self._move_leader, 3),
            (self._store_trouble, 5),
            (self._delete_records, 2),
            (self._next_application, 1),
            (self._copying_disabled, 1),
        ]
        if self._has_idle_outages:
            faults.append((self._idle_outage, 6))
        actions = [action for action, weight in faults for _ in range(weight)]
        self.chance.choice(actions)()
        self.after(self.chance.randint(1_000, 16_000), self._fault)

    def _kill(self) -> None:
        self._stop(self.chance.choice(self.application.brokers), loses_power=False)

    def _power_cut(self) -> None:
        self._stop(self.chance.choice(self.application.brokers), loses_power=True)

    def _power_cut_of_all(self) -> None:
        self.note("power cut of all")
        if self.chance.random() < 0.6:
            # The next leader has to serve without the tier.
            self._store_is_down()
        brokers = list(self.application.brokers)
        self.chance.shuffle(brokers)
        for broker in brokers:
            self._stop(broker, loses_power=True)

    def _idle_outage(self) -> None:
        """Let a leader with a shortened log serve without its tier and be replaced, and write nothing."""
        self._idle_until_ms = self.now_ms + IDLE_MS
        self._power_cut_of_all()
        self._store_is_down()
        for _ in range(3):
            self.after(self.chance.randint(10_000, IDLE_MS), self._move_leader)

    def _stop(self, broker: Broker, *, loses_power: bool) -> None:
        if not broker.is_alive:
            return
        self.note(f"{broker} {'loses power' if loses_power else 'is killed'}")
        application = broker.application
        application.stops(broker, loses_power=loses_power)
        self.after(self.chance.randint(100, 20_000), self._start, broker, self.chance.random() < 0.3)

    def _start(self, broker: Broker, with_empty_disk: bool) -> None:
        if broker.application is self.application and not broker.is_alive:
            self.note(f"{broker} starts")
            broker.application.starts(broker, with_empty_disk=with_empty_disk)

    def _freeze(self) -> None:
        running = [broker for broker in self.application.brokers if broker.is_running]
        leader = self.application.leader
        if not running:
            return
        broker = leader if leader in running and self.chance.random() < 0.7 else self.chance.choice(running)
        assert broker is not None
        broker.frozen_until_ms = self.now_ms + self.chance.randint(500, 30_000)
        self.note(f"{broker} is frozen until {broker.frozen_until_ms}")
        if self.chance.random() < 0.8:
            self.application.leaves(broker)
            if broker is leader:
                self.application.elect(than=broker)

    def _move_leader(self) -> None:
        self.application.elect(than=self.application.leader)

    def _store_trouble(self) -> None:
        trouble = self.chance.choice(["failing", "down", "slow"])
        self.note(f"the store is {trouble}")
        if trouble == "failing":
            self.store.failure_chance = self.chance.choice([0.1, 0.3, 0.6])
        elif trouble == "down":
            self._store_is_down()
        else:
            self.store.is_slow = True
        self.after(self.chance.randint(1_000, 40_000), self._store_works)

    def _store_is_down(self) -> None:
        self.store.is_down = True
        self.after(self.chance.randint(10_000, 40_000), self._store_works)

    def _store_works(self) -> None:
        self.store.failure_chance = 0.0
        self.store.is_down = self.store.is_slow = False

    def _delete_records(self) -> None:
        leader = self.application.leader
        if leader is None or not leader.is_running or leader.tier is None or not leader.tier.may_serve:
            return
        if self.config.compacts or leader.leader_epoch != self.application.leader_epoch:
            return
        high_watermark = leader.log.high_watermark
        offset = self.chance.choice(
            [high_watermark, self.chance.randint(leader.log.log_start_offset, high_watermark)]
        )
        self.note(f"records below {offset} are deleted")
        leader.log.advance_start(offset)
        self.truth.requested_start = max(self.truth.requested_start, offset)
        self.truth.highest_request = max(self.truth.highest_request, offset)
        if self.chance.random() < 0.25:
            # Neither checkpoints nor the tier may know the log start by then.
            self.after(self.chance.randint(1, 3_000), self._power_cut_of_all)

    def merging(self) -> None:
        """Delete records now and then while their segments are merged, and that takes its time."""
        if self.now_ms < FAULTS_MS and self.chance.random() < 0.1:
            self.store.is_slow = True
            self.after(4_000, self._store_works)
            self.after(self.chance.randint(20, 1_000), self._delete_records)

    def _next_application(self) -> None:
        if len(self.applications) == 3 or self.chance.random() < 0.4:
            return
        before = self.application
        goes_on = self.chance.random() < 0.6
        if not goes_on:
            for broker in before.brokers:
                before.stops(broker, loses_power=False)
        self._begin_application(before)

    def _begin_application(self, before: Application) -> None:
        # The snapshot of the metadata may be older than the last elections.
        leader_epoch = max(before.leader_epoch - self.chance.randint(0, 2), 0) + LEADER_EPOCHS_SKIPPED
        application = Application(self, before.owner_epoch + 1, leader_epoch)
        self.applications.append(application)
        self.note(f"application {application.owner_epoch} begins with empty disks")
        self.truth.allow_loss(application)
        application.elect()

    def _copying_disabled(self) -> None:
        self._reconfigure(replace(self.config, copy_disabled=True))
        self.after(self.chance.randint(5_000, 40_000), self._copying_enabled)

    def _copying_enabled(self) -> None:
        self._reconfigure(replace(self.config, copy_disabled=False))

    def _reconfigure(self, config: TierConfig) -> None:
        self.config = config
        for broker in self.brokers:
            broker.reconfigure()

    # --- the end --------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.note("all faults are over")
        self._store_works()
        self._copying_enabled()
        for broker in self.brokers:
            broker.frozen_until_ms = min(broker.frozen_until_ms, self.now_ms)
        for broker in self.application.brokers:
            self._start(broker, with_empty_disk=False)
        if self.application.leader is None:
            self.application.elect(unclean=True)

    def _end_of_a_stop(self) -> None:
        """Stop taking records, and copy up to the log's end."""
        self.is_calm = self._takes_records = False
        leader = self.application.leader
        if leader is None:
            self.check.fail("Liveness", "no leader is left")
            return
        self._run_until(self.now_ms + 5_000)
        if leader.tier is None:
            self.check.fail("Liveness", "the leader was replaced in the calm")
            return
        if self.chance.random() < 0.5:
            leader.tier_event(StopRequested())
            self._run_until(self.now_ms + 5_000)
            if not leader.tier.is_copied(leader.log.facts()):
                self.check.fail("StopCopiesAll", f"{leader} has not copied up to {leader.log.end_offset}")
            leader = self._replaced_leader(leader)
        # Until everything was merged, and orphans have been looked for twice.
        self._run_until(self.now_ms + FIRST_LISTING_MS + 2 * LISTING_INTERVAL_MS + 10_000)
        self.check.settled()

    def _replaced_leader(self, leader: Broker) -> Broker:
        """Have another leadership, since one that stops begins no other work."""
        self.application.elect(than=leader)
        return leader

    def _lose_all_disks(self) -> None:
        """Everything that was in the tier is served again by another application, exactly."""
        before = self.application
        expected = self.truth.visible(0, self.truth.end_offset)
        for broker in self.brokers:
            before_ = broker.application
            before_.stops(broker, loses_power=False)
        self._begin_application(before)
        self._run_until(self.now_ms + 30_000)
        leader = self.application.leader
        if leader is None or leader.tier is None or leader.tier.manifest is None:
            self.check.fail("RestoredIsWhole", "no leader has come back")
            return
        manifest = leader.tier.manifest
        served = self.records_of(manifest.segments)
        for offset, record in expected.items():
            if offset >= manifest.log_start_offset and (served or {}).get(offset) != record:
                if self.check.is_superseded(offset, record, manifest.end_offset):
                    continue
                self.check.fail("RestoredIsWhole", f"the record at {offset} is gone with the disks")
        if leader.log.end_offset < self.truth.end_offset:
            self.check.fail("RestoredIsWhole", f"the log goes on at {leader.log.end_offset}")


def run_seed(seed: int, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed; its outcome has the violation, if there is one."""
    world = World(seed, trace)
    outcome = Outcome(seed)
    sooner = [
        Replacement(partition_tier, "FIRST_LISTING_MS", FIRST_LISTING_MS),
        Replacement(partition_tier, "LISTING_INTERVAL_MS", LISTING_INTERVAL_MS),
    ]
    try:
        with replaced(sooner):
            world.run()
    except Violation as violation:
        outcome.violation = violation
    except Exception as error:
        outcome.violation = Violation("Exception", repr(error))
        outcome.violation.__cause__ = error
    outcome.story = list(world.story)
    outcome.trace_hash = world.scheduler.trace_hash
    outcome.event_count = world.scheduler.event_count
    outcome.elections, outcome.faults, outcome.swaps = world.elections, world.faults, world.swaps
    outcome.committed = world.truth.end_offset
    outcome.applications = len(world.applications)
    outcome.losses = world.truth.losses
    outcome.served_at_once = world.served_at_once
    return outcome
