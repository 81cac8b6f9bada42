"""What goes wrong, when the seed says so.

Each seed has its own few kinds of faults: all kinds at once drown each other (swarm testing). A fault ends by
itself after a while, and at the latest with `end`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest

from tests.simulation.controller_process import CONTROLLER_HOST
from tests.simulation.network import Process

if TYPE_CHECKING:
    from tests.simulation.cluster import World

_MANY_MS = (5, 8_000)


class Faults:
    """The faults of one simulation."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._random = random = world.scheduler.random
        self._is_over = False
        self._cuts: list[tuple[str, str]] = []
        kinds: list[Callable[[], None]] = [
            self._kill_broker,
            self._kill_broker,
            self._crash_machine,
            self._lose_disk,
            self._stop_broker,
            self._stop_broker,
            self._stop_controller,
            self._restart_controller,
            self._terminate_broker,
            self._cut_one_way,
            self._cut_one_way,
            self._isolate,
            self._kill_all,
            self._break_connections,
            self._stall_connections,
            self._stall_connections,
            self._elect_preferred,
            self._elect_preferred,
            self._delete_topic,
        ]
        self._kinds = random.sample(kinds, random.randint(2, 8))
        self._pause_ms = random.choice((100, 300, 1_000))

    def begin(self, end_ms: int) -> None:
        """Let faults happen from now on."""
        self._next()

    def end(self) -> None:
        """Heal everything that does not heal by itself."""
        self._is_over = True
        for source, target in self._cuts:
            self._world.network.heal(source, target)
        self._cuts.clear()
        self._world.network.slow_share = 0.0
        for process in [*self._world.brokers.values(), self._world.controller]:
            self._go_on(process)

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

    # --- processes and machines -----------------------------------------------------------------

    def _kill_broker(self) -> None:
        if self._world.brokers:
            broker = self._random.choice(list(self._world.brokers.values()))
            self._world.tell(None, f"SIGKILL of {broker.name}")
            self._world.broker_ended(broker, silently=False)

    def _kill_all(self) -> None:
        self._world.tell(None, "SIGKILL of all brokers")
        for broker in list(self._world.brokers.values()):
            self._world.broker_ended(broker, silently=False)

    def _crash_machine(self) -> None:
        if self._world.brokers:
            broker = self._random.choice(list(self._world.brokers.values()))
            self._world.tell(None, f"the machine of {broker.name} crashes")
            self._world.damage(broker, lambda: broker.disk.lose_unwritten(self._random))
            self._world.broker_ended(broker, silently=True)

    def _lose_disk(self) -> None:
        if self._world.brokers:
            broker = self._random.choice(list(self._world.brokers.values()))
            self._world.tell(None, f"SIGKILL of {broker.name}, which comes back on an empty disk")
            directory_id = self._world.new_directory_id()
            self._world.damage(broker, lambda: broker.disk.lose_everything(directory_id))
            self._world.broker_ended(broker, silently=False)

    def _terminate_broker(self) -> None:
        if self._world.brokers:
            broker = self._random.choice(list(self._world.brokers.values()))
            self._world.tell(None, f"SIGTERM of {broker.name}")
            broker.after(0, broker.ask_to_stop)

    def _stop_broker(self) -> None:
        if self._world.brokers:
            broker = self._random.choice(list(self._world.brokers.values()))
            self._stop(broker, broker.name)

    def _stop_controller(self) -> None:
        self._stop(self._world.controller, "the controller")

    def _stop(self, process: Process, name: str) -> None:
        self._world.tell(None, f"SIGSTOP of {name}")
        process.stop()
        self._scheduler.after(self._some_ms(), self._go_on, process)

    def _go_on(self, process: Process) -> None:
        if process.stopped and process.alive:
            self._world.tell(None, f"SIGCONT of {process.host}")
            process.go_on()

    def _restart_controller(self) -> None:
        self._world.tell(None, "SIGKILL of the controller")
        self._world.network.listening.pop(CONTROLLER_HOST, None)
        if self._world.controller.alive:
            self._world.controller.end(silently=False)
            self._scheduler.after(1 + self._random.randrange(1_000), self._world.start_controller)

    # --- network --------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        return [*(f"broker-{broker_id}" for broker_id in self._world.disks), CONTROLLER_HOST, "client"]

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

    def _elect_preferred(self) -> None:
        self._world.ask_controller(ElectLeadersRequest(election_type=0, topic_partitions=None))

    def _delete_topic(self) -> None:
        name = self._random.choice(list(self._world.topics))
        self._world.tell(None, f"{name} is deleted")
        self._world.delete_topic(name)
