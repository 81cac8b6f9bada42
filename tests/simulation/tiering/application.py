"""An application: its brokers, and a controller that elects leaders and commits ISRs in one step."""

from typing import TYPE_CHECKING, Final

from tests.simulation.tiering.broker import Broker

if TYPE_CHECKING:
    from tests.simulation.tiering.world import World

BROKERS: Final = 3


class Application:
    def __init__(self, world: "World", owner_epoch: int, leader_epoch: int) -> None:
        """Begin with empty disks, and a leader in `leader_epoch`."""
        self.world: Final = world
        self.owner_epoch: Final = owner_epoch
        self.leader_epoch = leader_epoch - 1
        self.brokers = [Broker(world, self, number) for number in range(BROKERS)]
        self.leader: Broker | None = None
        self.isr: set[Broker] = set(self.brokers)
        self.recovering: set[int] = set()
        """Leader epochs that began after an unclean election and before the next change of the ISR."""
        self._is_recovering = False
        self.may_have_lost: set[Broker] = set()
        """Brokers that were last in the ISR when they lost power."""

    @property
    def candidates(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker in self.isr and broker.is_running]

    def elect(self, *, unclean: bool = False, than: Broker | None = None) -> None:
        """Elect a leader, another one than `than` where there is one."""
        candidates = self.candidates
        others = [broker for broker in candidates if broker is not than]
        if others or candidates:
            leader = self.world.chance.choice(others or candidates)
            isr = {broker for broker in self.isr if broker.is_alive}
            if leader in self.may_have_lost:
                self.world.truth.allow_loss(self)
        elif unclean and (alive := [broker for broker in self.brokers if broker.is_running]):
            leader = self.world.chance.choice(alive)
            isr = {leader}
            self._is_recovering = True
            self.world.truth.allow_loss(self)
        else:
            self.leader = None
            return
        self.may_have_lost.clear()
        self.isr = isr | {leader}
        self.leader_epoch += 1
        if self._is_recovering:
            self.recovering.add(self.leader_epoch)
        before, self.leader = self.leader, leader
        self.world.elections += 1
        self.world.note(
            f"application {self.owner_epoch} elects {leader} in leader epoch {self.leader_epoch}, "
            f"ISR {sorted(broker.number for broker in self.isr)}"
        )
        for broker in self.brokers:
            slow = broker is before and broker is not leader and self.world.chance.random() < 0.5
            self._tell(broker, 40_000 if slow else 500)

    def _tell(self, broker: Broker, most_ms: int) -> None:
        assert self.leader is not None
        self.world.after(
            self.world.chance.randint(1, most_ms), broker.learn, self.leader_epoch, self.leader, set(self.isr)
        )

    def join_isr(self, leader: Broker, follower: Broker) -> None:
        if leader is self.leader and leader.leader_epoch == self.leader_epoch and follower.is_alive:
            self.isr.add(follower)
            self._is_recovering = False
            leader.isr = set(self.isr)

    def leaves(self, broker: Broker) -> None:
        """Take a broker that is gone, or frozen, out of the ISR, but for the last one."""
        if broker in self.isr and len(self.isr) > 1:
            self.isr.discard(broker)
            if self.leader is not None and self.leader is not broker:
                self._tell(self.leader, 500)

    def stops(self, broker: Broker, *, loses_power: bool) -> None:
        if not broker.is_alive:
            return
        self.leaves(broker)
        if loses_power and broker in self.isr:
            self.may_have_lost.add(broker)
        broker.stop(loses_power=loses_power)
        if broker is self.leader:
            self.leader = None

    def starts(self, broker: Broker, *, with_empty_disk: bool) -> None:
        if broker.is_alive:
            return
        broker.start(with_empty_disk=with_empty_disk and broker not in self.isr)
        if self.leader is not None:
            self._tell(broker, 500)
