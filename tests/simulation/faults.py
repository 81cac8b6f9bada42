"""What goes wrong, when the seed says so.

Each seed has a theme and from it its own few kinds of faults: all kinds at once drown each other (swarm
testing). A fault ends by itself after a while, and at the latest with `end`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest

from sparklog.node.metadata.topic_names import CONSUMER_OFFSETS_TOPIC
from tests.simulation.balancing import AWAY_MS
from tests.simulation.disk import Disk
from tests.simulation.network import Process
from tests.simulation.topics import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION, reassignment

if TYPE_CHECKING:
    from tests.simulation.broker_process import BrokerProcess
    from tests.simulation.cluster import World

_MANY_MS = (5, 8_000)


class Faults:
    """The faults of one simulation."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._random = random = world.scheduler.random
        self._is_over = False
        self._has_rivals = False
        self._cuts: list[tuple[str, str]] = []
        brokers = [
            self._kill_broker,
            self._kill_broker,
            self._crash_machine,
            self._terminate_broker,
            self._stop_broker,
            self._stop_broker,
            self._freeze_broker,
            self._jump_clock,
            self._slow_disk,
            self._lose_disk,
            self._fail_disk,
        ]
        network = [
            self._cut_one_way,
            self._isolate,
            self._break_connections,
            self._stall_connections,
            self._stall_connections,
        ]
        disasters = [self._kill_rack, self._kill_all, self._crash_rack, self._crash_all]
        drivers = [
            self._stop_controller,
            self._restart_controller,
            self._restart_controller,
            self._replace_application,
            self._replace_application,
            self._damage_metadata,
            self._lose_disk,
        ]
        administration = [
            self._elect_preferred,
            self._elect_preferred,
            self._change_min_isr,
            self._change_unclean_election,
            self._delete_topic,
        ]
        slow = [
            self._change_min_isr,
            self._change_min_isr,
            self._stall_connections,
            self._stall_connections,
            self._slow_disk,
            self._stop_broker,
            self._cut_one_way,
        ]
        rivals = [self._rival_candidate, self._rival_candidate, self._kill_broker]
        coordinators = [
            self._kill_coordinator,
            self._kill_coordinator,
            self._move_coordinator,
            self._move_coordinator,
            self._terminate_broker,
            self._cut_off_from_driver,
            self._cut_off_from_driver,
            self._stop_broker,
            self._break_connections,
            self._stall_connections,
            self._elect_preferred,
        ]
        themes: tuple[list[Callable[[], None]], ...] = (
            *2 * ([*brokers, *network, *administration],),
            *2 * ([*brokers[:6], *network, self._elect_preferred],),
            [*brokers, *disasters, *administration],
            *2 * ([*drivers, *network, self._kill_broker, self._crash_machine],),
            [*drivers, *disasters, *brokers],
            slow,
            rivals,
            [*brokers, *network, *disasters, *drivers, *administration],
        )
        if world.transacts:
            # Seldom do all lose something: nothing is demanded of transactions then.
            themes = (
                *3 * ([*brokers[:9], *network, self._kill_later, self._elect_preferred],),
                *2 * ([*brokers[:6], *network, *2 * [self._kill_later]],),
                [*drivers[:5], *network, self._kill_broker, self._stop_broker],
                [*brokers, *disasters, *administration],
                slow,
            )
        kinds = random.choice(themes)
        if world.has_members and random.random() < 0.7:
            kinds = coordinators
        self._kinds = random.sample(kinds, min(len(kinds), random.randint(2, 7)))
        if world.has_members:
            # Whose clock jumps ends sessions that last.
            self._kinds = [kind for kind in self._kinds if kind != self._jump_clock] or [self._kill_broker]
        if world.balances:
            self._kinds += 2 * [self._kill_for_long]
        world.network.clocks_stop = self._freeze_broker in self._kinds
        # A new driver needs a while before anything can happen to it, and so do transactions and groups.
        needs_time = kinds is rivals or world.transacts or world.has_members
        self._pause_ms = random.choice((400, 900, 1_800) if needs_time else (80, 200, 600))

    def begin(self, end_ms: int) -> None:
        """Let faults happen from now on."""
        self._next()

    def may_end(self, end_ms: int) -> bool:
        """Whether it is time to end them."""
        return self._scheduler.now_ms >= end_ms

    def end(self) -> None:
        """Heal everything that does not heal by itself."""
        self._is_over = True
        for source, target in self._cuts:
            self._world.network.heal(source, target)
        self._cuts.clear()
        self._world.network.slow_share = 0.0
        for disk in self._world.disks.values():
            disk.is_failing = False
        for process in [*self._world.brokers.values(), self._world.controller]:
            self._go_on(process)
        for driver in list(self._world.drivers):
            if driver is not self._world.controller:
                self._world.driver_ended(driver)

    def _next(self) -> None:
        if self._is_over:
            return
        self._world.outcome.faults += 1
        self._random.choice(self._kinds)()
        # Several at once now and then: what matters happens between two faults that are close.
        pause_ms = 5 if self._random.random() < 0.2 else self._pause_ms
        self._scheduler.after(1 + self._random.randrange(2 * pause_ms), self._next)
        if self._random.random() < 0.3:
            disk = self._world.disks[self._random.randrange(len(self._world.disks))]
            disk.write_back(self._random)

    def _some_ms(self) -> int:
        """Return a length of time, as often short as long."""
        low, high = _MANY_MS
        return int(low * (high / low) ** self._random.random())

    def _some_broker(self) -> "BrokerProcess | None":
        brokers = list(self._world.brokers.values())
        return self._random.choice(brokers) if brokers else None

    def _some_rack(self) -> "list[BrokerProcess]":
        rack = self._random.randrange(self._world.rack_count)
        return [
            broker
            for broker in self._world.brokers.values()
            if broker.broker_id % self._world.rack_count == rack
        ]

    # --- processes and machines -----------------------------------------------------------------

    def _kill(self, brokers: "Iterable[BrokerProcess]") -> None:
        for broker in list(brokers):
            self._world.tell(None, f"SIGKILL of {broker.name}")
            self._world.broker_ended(broker, silently=False)

    def _kill_broker(self) -> None:
        if (broker := self._some_broker()) is not None:
            self._kill([broker])

    def _kill_for_long(self) -> None:
        """A broker's machine is replaced late, or too late."""
        broker = self._some_broker()
        if broker is not None and len(self._world.brokers) > len(self._world.disks) // 2:
            self._world.tell(None, f"{broker.name} is away for long")
            self._world.broker_ended(broker, silently=False, away_ms=AWAY_MS)

    def _kill_later(self) -> None:
        """What a broker says before it is killed comes late."""
        broker = self._some_broker()
        if broker is not None:
            late_ms = self._random.randint(500, 3_000)
            self._world.tell(None, f"what {broker.name} says comes {late_ms} ms late")
            for connection in broker.connections:
                if connection.client is broker:
                    connection.stall(late_ms)
            self._scheduler.after(self._random.randrange(300), self._kill_if_alive, broker)

    def _kill_if_alive(self, broker: "BrokerProcess") -> None:
        if broker.alive and not self._is_over:
            self._kill([broker])

    def _kill_coordinator(self) -> None:
        coordinators = [broker for broker in self._world.brokers.values() if broker.coordinates]
        if coordinators:
            self._kill([self._random.choice(coordinators)])

    def _kill_rack(self) -> None:
        self._kill(self._some_rack())

    def _kill_all(self) -> None:
        self._kill(self._world.brokers.values())

    def _crash(self, brokers: "Iterable[BrokerProcess]") -> None:
        for broker in list(brokers):
            self._world.tell(None, f"the machine of {broker.name} crashes")
            self._world.damage(broker, partial(broker.disk.lose_unwritten, self._random))
            self._world.broker_ended(broker, silently=True)

    def _crash_machine(self) -> None:
        if (broker := self._some_broker()) is not None:
            self._crash([broker])

    def _crash_rack(self) -> None:
        self._crash(self._some_rack())

    def _crash_all(self) -> None:
        self._crash(self._world.brokers.values())

    def _terminate_broker(self) -> None:
        if (broker := self._some_broker()) is not None:
            self._world.tell(None, f"SIGTERM of {broker.name}")
            broker.after(0, broker.ask_to_stop)

    def _stop_broker(self) -> None:
        if (broker := self._some_broker()) is not None:
            self._stop(broker, broker.name)

    def _freeze_broker(self) -> None:
        if (broker := self._some_broker()) is not None and not broker.stopped:
            self._world.tell(None, f"the machine of {broker.name} is suspended")
            broker.freeze()
            self._scheduler.after(self._some_ms(), self._go_on, broker)

    def _jump_clock(self) -> None:
        if (broker := self._some_broker()) is not None:
            ahead_ms = self._some_ms()
            self._world.tell(None, f"the clock of {broker.name} jumps {ahead_ms} ms ahead")
            broker.jump(ahead_ms)

    # --- disks ----------------------------------------------------------------------------------

    def _lose_disk(self) -> None:
        if (broker := self._some_broker()) is not None and self._world.may_lose_disk(broker.broker_id):
            self._world.tell(None, f"SIGKILL of {broker.name}, which comes back on an empty disk")
            directory_id = self._world.new_directory_id()
            self._world.damage(broker, partial(broker.disk.lose_everything, directory_id))
            self._world.broker_ended(broker, silently=False)

    def _damage_metadata(self) -> None:
        if (broker := self._some_broker()) is not None and self._world.may_lose_disk(broker.broker_id):
            self._world.tell(None, f"the machine of {broker.name} crashes, a bit of its metadata has flipped")
            self._world.damage(broker, partial(broker.disk.damage_metadata, self._random))
            self._world.broker_ended(broker, silently=True)

    def _fail_disk(self) -> None:
        if (broker := self._some_broker()) is not None and not broker.disk.is_failing:
            for_ms = self._some_ms()
            self._world.tell(None, f"nothing can be written on the disk of {broker.name} for {for_ms} ms")
            broker.disk.is_failing = True
            broker.disk.running_broker_epoch = None
            self._scheduler.after(for_ms, self._repair, broker.disk)

    def _repair(self, disk: Disk) -> None:
        disk.is_failing = False

    def _slow_disk(self) -> None:
        if (broker := self._some_broker()) is not None:
            self._world.tell(None, f"the disk of {broker.name} is slow")
            self._stutter(broker, self._random.randrange(20))

    def _stutter(self, broker: "BrokerProcess", times: int) -> None:
        # Writing holds the loop up, as production's does.
        if times and broker.alive and not broker.stopped and not self._is_over:
            broker.stop()
            wait_ms = self._random.randrange(300)
            self._scheduler.after(wait_ms, self._go_on, broker)
            self._scheduler.after(wait_ms + self._random.randrange(100), self._stutter, broker, times - 1)

    # --- the controller -------------------------------------------------------------------------

    def _stop_controller(self) -> None:
        self._stop(self._world.controller, "the controller")

    def _stop(self, process: Process, name: str) -> None:
        self._world.tell(None, f"SIGSTOP of {name}")
        process.stop()
        self._scheduler.after(self._some_ms(), self._go_on, process)

    def _go_on(self, process: Process) -> None:
        if process.stopped and process.alive:
            self._world.tell(None, f"{process.host} goes on")
            process.go_on()

    def _restart_controller(self) -> None:
        self._world.tell(None, "SIGKILL of the controller")
        self._world.driver_ended(self._world.controller)

    def _replace_application(self) -> None:
        """Another application begins on the same disks, whatever became of the one before it."""
        old = self._world.controller
        fate = self._random.choice(("killed", "stopped", "left alone"))
        self._world.tell(None, f"another application begins, the driver before it is {fate}")
        if fate == "stopped" and old.alive:
            self._stop(old, old.name)
        self._world.start_application()
        if fate == "killed":
            self._world.driver_ended(old)

    def _rival_candidate(self) -> None:
        """A driver hangs while it asks for votes, so does the next one, and both go on."""
        if self._has_rivals:
            return
        self._has_rivals = True
        self._restart_controller()
        self._scheduler.after(1, self._hang_candidate, [], self._random.random() < 0.8, 3_000)

    def _hang_candidate(self, hung: list[Process], pre_vote: bool, tries: int) -> None:
        driver = self._world.controller
        if self._is_over or not tries:
            self._release(hung)
        elif not driver.alive or driver.stopped or driver.asks_for_pre_votes is not pre_vote:
            wait_ms = 1 + self._random.randrange(4)
            self._scheduler.after(wait_ms, self._hang_candidate, hung, pre_vote, tries - 1)
        else:
            self._world.tell(None, f"{driver.name} hangs while it asks for votes")
            driver.stop()
            hung.append(driver)
            if len(hung) == 1:
                self._world.start_application()
                self._scheduler.after(1, self._hang_candidate, hung, True, 3_000)
            else:
                self._scheduler.after(self._random.randrange(30), self._release, hung)

    def _release(self, hung: list[Process]) -> None:
        self._has_rivals = False
        for driver in hung:
            self._go_on(driver)

    # --- network --------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        return [
            *(f"broker-{broker_id}" for broker_id in self._world.disks),
            *(driver.host for driver in self._world.drivers),
            *(host for group in self._world.member_groups for host in group.hosts),
            *(() if self._world.sinks is None else self._world.sinks.hosts),
            "client",
        ]

    def _cut(self, source: str, target: str, for_ms: int) -> None:
        self._world.network.cut(source, target)
        self._cuts.append((source, target))
        self._scheduler.after(for_ms, self._heal, source, target)

    def _heal(self, source: str, target: str) -> None:
        if (source, target) in self._cuts:
            self._cuts.remove((source, target))
            self._world.network.heal(source, target)

    def _cut_one_way(self) -> None:
        source, target = self._random.sample(self._hosts(), 2)
        for_ms = self._some_ms()
        self._world.tell(None, f"nothing passes from {source} to {target} for {for_ms} ms")
        self._cut(source, target, for_ms)

    def _isolate(self) -> None:
        hosts = self._hosts()
        inside = self._random.sample(hosts, self._random.randint(1, len(hosts) - 1))
        for_ms = self._some_ms()
        self._world.tell(None, f"{sorted(inside)} are alone for {for_ms} ms")
        for here in inside:
            for there in hosts:
                if there not in inside:
                    self._cut(here, there, for_ms)
                    self._cut(there, here, for_ms)

    def _cut_off_from_driver(self) -> None:
        """Have a broker's lease run out while its clients reach it."""
        if (broker := self._some_broker()) is not None:
            for_ms = self._some_ms()
            driver = self._world.controller.host
            self._world.tell(None, f"{broker.name} and {driver} do not reach each other for {for_ms} ms")
            self._cut(broker.host, driver, for_ms)
            self._cut(driver, broker.host, for_ms)

    def _break_connections(self) -> None:
        brokers = list(self._world.brokers.values())
        if brokers:
            broker = self._random.choice(brokers)
            connections = list(broker.connections)
            broken = self._random.sample(connections, self._random.randint(0, len(connections)))
            self._world.tell(None, f"{len(broken)} connections of {broker.name} break")
            for connection in broken:
                connection.reset()

    def _stall_connections(self) -> None:
        brokers = list(self._world.brokers.values())
        if brokers:
            broker = self._random.choice(brokers)
            connections = list(broker.connections)
            stalled = self._random.sample(connections, self._random.randint(0, len(connections)))
            self._world.tell(None, f"{len(stalled)} connections of {broker.name} stall")
            for connection in stalled:
                connection.stall(self._some_ms())

    # --- administration -------------------------------------------------------------------------

    def disturb_coordinators(self) -> None:
        """Have a coordinator of groups be elsewhere soon."""
        if not self._is_over:
            self._random.choice((self._move_coordinator, self._move_coordinator, self._kill_coordinator))()

    def _move_coordinator(self) -> None:
        plan = self._world.topics[CONSUMER_OFFSETS_TOPIC]
        number, brokers = self._random.randrange(plan.partitions), list(self._world.disks)
        target = tuple(self._random.sample(brokers, min(3, len(brokers))))
        self._world.tell(None, f"{plan.name}-{number} is to be moved to {target}")
        self._world.ask_controller(reassignment(plan.name, number, target))

    def _elect_preferred(self) -> None:
        self._world.ask_controller(ElectLeadersRequest(election_type=0, topic_partitions=None))

    def _change_min_isr(self) -> None:
        name = self._random.choice(list(self._world.topics))
        value = str(self._random.randint(1, 3))
        self._world.tell(None, f"{name} is given {MIN_INSYNC_REPLICAS} {value}")
        self._world.configure_topic(name, MIN_INSYNC_REPLICAS, value)

    def _change_unclean_election(self) -> None:
        name = self._random.choice(list(self._world.topics))
        value = self._random.choice(("false", "false", "true"))
        self._world.tell(None, f"{name} is given {UNCLEAN_ELECTION} {value}")
        self._world.configure_topic(name, UNCLEAN_ELECTION, value)

    def _delete_topic(self) -> None:
        name = self._random.choice(list(self._world.topics))
        self._world.tell(None, f"{name} is deleted")
        self._world.delete_topic(name)
