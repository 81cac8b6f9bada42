"""An administrator who moves partitions from broker to broker while all else goes wrong, in some seeds.

In some of these topics grow meanwhile.

Not one of the faults: a cluster that is asked to move its partitions is well, and must get them there.
"""

from typing import TYPE_CHECKING, Final

from sparklog.node.metadata.topic_names import is_internal_topic
from sparklog.protocol.types import BrokerId
from tests.simulation.topics import reassignment

if TYPE_CHECKING:
    from tests.simulation.cluster import World

_IN_ONE_SEED_OF: Final = 4
_GROWING_IN_ONE_SEED_OF: Final = 20
"""In which of them topics get more partitions, too, while what they have is moved."""
_GROWN: Final = 0.2
_MOST_PARTITIONS: Final = 5
_PAUSES_MS: Final = (100, 400, 1_500)
_CANCELLED: Final = 0.25
"""How many requests call off what another one began."""


class Moves:
    """Asks for reassignments, of one partition at a time, until it is told to stop."""

    def __init__(self, world: "World", seed: int) -> None:
        self._world = world
        self._is_over = seed % _IN_ONE_SEED_OF != _IN_ONE_SEED_OF - 1
        self._grows = seed % _GROWING_IN_ONE_SEED_OF == 2 * _IN_ONE_SEED_OF - 1

    def begin(self) -> None:
        """Begin to ask, if this is such a seed."""
        if not self._is_over:
            self._pause_ms = self._world.scheduler.random.choice(_PAUSES_MS)
            self._move()

    def end(self) -> None:
        """Ask for nothing more; what is under way is to come to its end."""
        self._is_over = True

    def _move(self) -> None:
        if self._is_over:
            return
        world, random = self._world, self._world.scheduler.random
        topic = random.choice(list(world.topics.values()))
        grows = self._grows and not is_internal_topic(topic.name)
        if grows and random.random() < _GROWN and topic.partitions < _MOST_PARTITIONS:
            world.tell(None, f"{topic.name} is to get a partition more")
            world.grow_topic(topic.name)
        number = random.randrange(topic.partitions)
        target: tuple[BrokerId, ...] | None = None
        if random.random() >= _CANCELLED:
            brokers = list(world.disks)
            count = random.choice((1, 2, 2, 3, 3))
            if world.transacts:
                # One replica alone would lose too much that transactions rest on.
                count = max(count, 2)
            target = tuple(random.sample(brokers, min(len(brokers), count)))
        world.tell(None, f"{topic.name}-{number} is to be moved to {target}")
        world.ask_controller(reassignment(topic.name, number, target))
        world.scheduler.after(1 + random.randrange(2 * self._pause_ms), self._move)
