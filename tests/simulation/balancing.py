"""The seeds in which the controller moves replicas by itself, while brokers stay away for long.

In half of them an administrator moves partitions, too.
"""

from typing import TYPE_CHECKING, Final

from sparklog.driver.controller.machine.balancing.moves import is_uneven
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId, TopicIdPartition
from tests.simulation.measured_loads import unbalanced_goal

if TYPE_CHECKING:
    from tests.simulation.cluster import World

LOAD_SEEDS: Final = range(52, 52 + 128 * 1_000, 128)
"""Those in which it is alone, and brokers report the use of their disks and the traffic of their leaders."""
BALANCING_SEEDS: Final = range(20, 20 + 32 * 1_000, 32)
"""The first of those in which it is alone."""
_OF_SEEDS: Final = 32
_BESIDE_AN_ADMINISTRATOR: Final = 31
BROKERS: Final = 6
REPLACE_AFTER_MS: Final = 2_500
"""So short that brokers are lost for good."""
AWAY_MS: Final = (1_000, 7_000)
"""For how long brokers are away: they come back before that, or after it."""


def balances(seed: int) -> bool:
    return balances_alone(seed) or seed % _OF_SEEDS == _BESIDE_AN_ADMINISTRATOR


def balances_alone(seed: int) -> bool:
    """Whether no administrator moves partitions: then the cluster must become balanced."""
    return seed % _OF_SEEDS == BALANCING_SEEDS.start


def has_loads(seed: int) -> bool:
    """Whether partitions have sizes and traffic, by which disks and leaders must become balanced, too."""
    return seed in LOAD_SEEDS


def unbalanced(world: "World") -> tuple[str, TopicIdPartition | None] | None:
    """Return what is not balanced at the end, and a partition; None if all is."""
    image = world.metadata.image
    held = dict.fromkeys(world.disks, 0)
    for topic in image.topics.by_id.values():
        for number, partition in topic.partitions.items():
            if not are_apart(image, partition.replicas):
                return f"{partition.replicas} share a rack", TopicIdPartition(topic.topic_id, number)
            for broker_id in partition.replicas:
                held[broker_id] += 1
    if world.load_meter is not None:
        goal = unbalanced_goal(image)
        return None if goal is None else (f"{goal.value} would need moves", None)
    if is_uneven(list(held.values())):
        return f"brokers hold {held} replicas", None
    return None


def are_apart(image: MetadataImage, replicas: tuple[BrokerId, ...]) -> bool:
    """Whether no two replicas are in one rack as long as there is one without any."""
    racks = [image.brokers[each].rack for each in replicas if each in image.brokers]
    everywhere = {broker.rack for broker in image.brokers.values()}
    return len(set(racks)) == len(racks) or set(racks) >= everywhere
