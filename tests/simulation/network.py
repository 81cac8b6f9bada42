"""Processes on hosts, and TCP between them.

A connection delivers each direction's messages in order, or breaks; there is no order between connections. A
cut is one-way: what is sent into it waits for retransmission, so it comes late or, when somebody has given up
the connection meanwhile, as a surprise. A process that is stopped (SIGSTOP) keeps its connections, and finds
everything at once when it goes on. A killed process's kernel says so to its peers; a crashed machine says
nothing until it is up again and is asked.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sparklog.node.exponential_backoff import ExponentialBackoff
from tests.simulation.scheduler import Scheduler

Reply = Callable[[Any], None]

SLOW_MS: Final = 400
CONNECT_TIMEOUT_MS: Final = 1_000
BACKOFF: Final = ExponentialBackoff(first_ms=20, max_ms=500)
_CLOSE: Final = object()


class Process:
    """Something that runs on a host: alive or not, stopped or not, with a clock of its own."""

    def __init__(
        self, network: "Network", host: str, *, clock_offset_ms: int = 0, drift: float = 0.0
    ) -> None:
        self.network = network
        self.scheduler = network.scheduler
        self.host = host
        self.alive = True
        self.stopped = False
        self.connections: dict[Connection, None] = {}
        self.was_frozen = False
        """Whether its clock stood still while others went on; then no lease holds what it promises."""
        self._frozen_ms: int | None = None
        self._clock_offset_ms = clock_offset_ms
        self._rate = 1.0 + drift
        self._stalled: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    @property
    def now_ms(self) -> int:
        """The process's own monotonic clock."""
        return self._clock_offset_ms + int(self.scheduler.now_ms * self._rate)

    def after(self, delay_ms: int, action: Callable[..., None], *arguments: Any) -> None:
        """Set a timer of the process's clock; it dies with the process, and waits while that is stopped."""
        if delay_ms <= 0:
            self.scheduler.after(0, self.run, action, arguments)
            return
        # Never early, by the process's own clock.
        wait_ms = int(delay_ms / self._rate) + 1
        if self.network.clocks_stop:
            self.scheduler.after(wait_ms, self._fire, self.now_ms + delay_ms, action, arguments)
        else:
            self.scheduler.after(wait_ms, self.run, action, arguments)

    def _fire(self, due_ms: int, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        early_ms = due_ms - self.now_ms
        if self._frozen_ms is not None:
            self.run(self._fire, (due_ms, action, arguments))
        elif early_ms > 0:
            # The clock stood still.
            self.scheduler.after(early_ms, self._fire, due_ms, action, arguments)
        else:
            self.run(action, arguments)

    def run(self, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Do something now, or when the process goes on."""
        if not self.alive:
            return
        if self.stopped:
            self._stalled.append((action, arguments))
            return
        action(*arguments)
        self.touched()

    def touched(self) -> None:
        """The process has just done something; its state may have changed."""

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def freeze(self) -> None:
        """The machine is suspended: its clock stops with it."""
        self.stopped = self.was_frozen = True
        self._frozen_ms = self.scheduler.now_ms

    def jump(self, ahead_ms: int) -> None:
        """The clock jumps ahead."""
        self._clock_offset_ms += ahead_ms

    def go_on(self) -> None:
        """SIGCONT: timers and messages that are due come in any order."""
        if self._frozen_ms is not None:
            self._clock_offset_ms -= int((self.scheduler.now_ms - self._frozen_ms) * self._rate)
            self._frozen_ms = None
        self.stopped = False
        stalled, self._stalled = self._stalled, []
        for action, arguments in stalled:
            self.scheduler.after(0, self.run, action, arguments)

    def end(self, *, silently: bool) -> None:
        """The process is no more; `silently` if its machine crashed with it."""
        self.alive = False
        for connection in list(self.connections):
            connection.process_ended(self, silently=silently)
        self.connections.clear()

    def receive(self, connection: "Connection", message: Any, reply: Reply) -> None:
        """A request came over a connection to this process."""

    def disconnected(self, connection: "Connection") -> None:
        """A connection to this process has ended."""


class Network:
    """Who listens where, what is cut, how long messages take."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.listening: dict[str, Process] = {}
        self.crashed_hosts: set[str] = set()
        self.clocks_stop = False
        """Whether machines are suspended, so that timers must look at the clock when they are due."""
        self.slow_share = 0.01
        """How many messages take long."""
        self._cuts: dict[tuple[str, str], int] = {}

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one host to another until `heal`."""
        self._cuts[source, target] = self._cuts.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """End one cut."""
        self._cuts[source, target] -= 1
        if not self._cuts[source, target]:
            del self._cuts[source, target]

    def is_cut(self, source: str, target: str) -> bool:
        """Whether messages are lost now."""
        return (source, target) in self._cuts

    def delay_ms(self) -> int:
        """How long the next message takes."""
        chance = self.scheduler.random.random()
        if chance < self.slow_share:
            return int(SLOW_MS * self.scheduler.random.random())
        return 1 + int(chance * 3)

    def retransmission_ms(self) -> int:
        """How long until TCP tries again; it waits the longer the longer it has waited."""
        return int(50 * 60 ** self.scheduler.random.random())


class Connection:
    """One TCP connection from `link` to a server."""

    def __init__(self, network: Network, link: "Link", server: Process) -> None:
        self.client = link.owner
        self.server = server
        self.peer = "127.0.0.1:0"
        self._network = network
        self._link = link
        self._client_open = self._server_open = True
        self._stalled_until_ms = 0
        self._up: deque[Any] = deque()
        self._down: deque[Any] = deque()
        self._close_callbacks: list[Callable[[], None]] = []
        self.client.connections[self] = None
        server.connections[self] = None

    def on_close(self, callback: Callable[[], None]) -> None:
        """Have the server's `callback` called when the connection has ended for it."""
        if self._server_open:
            self._close_callbacks.append(callback)
        else:
            callback()

    def send_request(self, number: int, message: Any) -> None:
        """Send a message up."""
        self._send((number, message), upward=True)

    def close(self) -> None:
        """The client gives the connection up; the server learns of it after all that was sent."""
        if self._client_open:
            self._client_open = False
            self._send(_CLOSE, upward=True)
            self.client.connections.pop(self, None)

    def reset(self) -> None:
        """The connection breaks; what is under way arrives up to some point."""
        random = self._network.scheduler.random
        for queue in (self._up, self._down):
            for _ in range(random.randint(0, len(queue))):
                queue.pop()
        self._send(_CLOSE, upward=True)
        self._send(_CLOSE, upward=False)

    def stall(self, for_ms: int) -> None:
        """Let nothing arrive for a while: losses that hit this connection alone."""
        self._stalled_until_ms = self._network.scheduler.now_ms + for_ms

    def process_ended(self, process: Process, *, silently: bool) -> None:
        """One of the ends is no more."""
        upward = process is self.client
        if upward:
            self._client_open = False
        else:
            self._server_open = False
        if silently:
            (self._up if upward else self._down).clear()
        else:
            self._send(_CLOSE, upward=upward)

    def _send(self, item: Any, *, upward: bool) -> None:
        (self._up if upward else self._down).append(item)
        self._network.scheduler.after(self._network.delay_ms(), self._deliver, upward)

    def _deliver(self, upward: bool) -> None:
        queue = self._up if upward else self._down
        if not queue:
            return
        sender, receiver = (self.client, self.server) if upward else (self.server, self.client)
        network = self._network
        if network.is_cut(sender.host, receiver.host):
            network.scheduler.after(network.retransmission_ms(), self._deliver, upward)
            return
        if network.scheduler.now_ms < self._stalled_until_ms:
            network.scheduler.after(self._stalled_until_ms - network.scheduler.now_ms, self._deliver, upward)
            return
        if not receiver.alive:
            queue.clear()
            if receiver.host not in network.crashed_hosts and sender.alive:
                # Nobody has this connection there: the sender is told so.
                self._send(_CLOSE, upward=not upward)
            return
        receiver.run(self._arrive, (upward,))

    def _arrive(self, upward: bool) -> None:
        queue = self._up if upward else self._down
        if not queue:
            return
        item = queue.popleft()
        if upward:
            if not self._server_open:
                return
            if item is _CLOSE:
                self._server_open = False
                self.server.connections.pop(self, None)
                self.server.disconnected(self)
                callbacks, self._close_callbacks = self._close_callbacks, []
                for callback in callbacks:
                    callback()
                return
            number, message = item
            self.server.receive(self, message, lambda answer: self._answer(number, answer))
        elif self._client_open:
            if item is _CLOSE:
                self._client_open = False
                self.client.connections.pop(self, None)
                self._link.lost(self)
            else:
                self._link.answered(self, *item)

    def _answer(self, number: int, answer: Any) -> None:
        if self._server_open and self.server.alive:
            self._send((number, answer), upward=False)


class Link:
    """A client's connection to one host, made again when it is lost.

    A request that is not answered in time ends the connection for all that wait on it.
    """

    def __init__(self, owner: Process, host: str) -> None:
        self.owner = owner
        self.host = host
        self.closed = False
        self.stays_connected = False
        """Whether it connects again before there is anything to send."""
        self.on_connected: Callable[[], None] | None = None
        self.lost_at_ms: int | None = owner.now_ms
        """Since when there is no connection."""
        self._connection: Connection | None = None
        self._connecting = False
        self._failures = 0
        self._number = 0
        self._waiting: dict[int, tuple[Any, Callable[[Any], None]]] = {}
        """What could not be sent yet, and then what is not answered yet."""
        self._unsent: list[int] = []
        self._deadlines_ms: dict[int, int] = {}
        """Of what waits, by the world's clock."""
        self._timer_ms: int | None = None

    @property
    def is_connected(self) -> bool:
        """Whether a request can be sent at once."""
        return self._connection is not None

    def request(self, message: Any, timeout_ms: int, done: Callable[[Any], None]) -> None:
        """Call `done` with the answer, or with None when there is none."""
        self._number += 1
        number = self._number
        self._waiting[number] = (message, done)
        if self._connection is not None:
            self._connection.send_request(number, message)
        else:
            self._unsent.append(number)
            self.connect()
        self._deadlines_ms[number] = self.owner.scheduler.now_ms + timeout_ms
        self._set_timer()

    def connect(self) -> None:
        """Begin to connect, unless that is done or under way."""
        if self._connection is None and not self._connecting and not self.closed:
            self._connecting = True
            delay_ms = self.owner.network.delay_ms() + self.owner.network.delay_ms()
            self.owner.after(delay_ms, self._try_to_connect)

    def close(self) -> None:
        """Connect no more; nobody is called any more."""
        self.closed = True
        self._waiting.clear()
        self._unsent.clear()
        self._deadlines_ms.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def answered(self, connection: Connection, number: int, answer: Any) -> None:
        """The server answered."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            del self._deadlines_ms[number]
            waiting[1](answer)

    def lost(self, connection: Connection) -> None:
        """The connection has ended."""
        if connection is self._connection:
            self._fail()

    def _try_to_connect(self) -> None:
        network = self.owner.network
        self._connecting = False
        if self.closed:
            return
        server = network.listening.get(self.host)
        here, there = self.owner.host, self.host
        silent = network.is_cut(here, there) or network.is_cut(there, here) or there in network.crashed_hosts
        if server is None or silent:
            pause_ms = CONNECT_TIMEOUT_MS if silent else BACKOFF.pause_ms(self._failures)
            self._failures += 1
            self._connecting = True
            self.owner.after(pause_ms, self._try_to_connect)
            return
        self._failures = 0
        self.lost_at_ms = None
        self._connection = Connection(network, self, server)
        if self.on_connected is not None:
            self.on_connected()
        unsent, self._unsent = self._unsent, []
        for number in unsent:
            if number in self._waiting:
                self._connection.send_request(number, self._waiting[number][0])

    def _set_timer(self) -> None:
        due_ms = min(self._deadlines_ms.values())
        if self._timer_ms is None or due_ms < self._timer_ms:
            self._timer_ms = due_ms
            self.owner.after(due_ms - self.owner.scheduler.now_ms, self._look_at_deadlines, due_ms)

    def _look_at_deadlines(self, timer_ms: int) -> None:
        if timer_ms != self._timer_ms:
            return
        self._timer_ms = None
        now_ms = self.owner.scheduler.now_ms
        for number in [number for number, due_ms in self._deadlines_ms.items() if due_ms <= now_ms]:
            self._time_out(number)
        if self._deadlines_ms:
            self._set_timer()

    def _time_out(self, number: int) -> None:
        if self._deadlines_ms.pop(number, None) is None:
            return
        if number in self._unsent:
            self._unsent.remove(number)
            self._waiting.pop(number)[1](None)
        else:
            assert self._connection is not None
            self._connection.close()
            self._fail()

    def _fail(self) -> None:
        self._connection = None
        self.lost_at_ms = self.owner.now_ms
        waiting, self._waiting = self._waiting, {}
        self._unsent = []
        self._deadlines_ms.clear()
        for _, done in waiting.values():
            done(None)
        if self._waiting or self.stays_connected:
            self.connect()
