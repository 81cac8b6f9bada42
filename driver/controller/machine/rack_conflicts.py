"""Brokers whose rack is another one in the cluster's metadata than in this application. Pure.

Their ids are counted by racks and brokers of a rack. A start with other numbers than the cluster has
could give an id to another rack, and then two replicas of a partition could lie in one rack.
"""

from collections.abc import Iterable, Mapping, Sequence

from sparklog.driver.machine.broker_ids import STRIDE
from sparklog.node.metadata.cluster_size import ClusterSize, brokers_by_rack
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId


def rack_conflict(
    image: MetadataImage, expected: Iterable[tuple[BrokerId, str]], rack_names: Sequence[str] = ()
) -> str | None:
    """Return the conflict of expected brokers' racks in a sentence with its remedy; None without one."""
    racks = {each: broker.rack for each, broker in image.brokers.items()}
    moved = [
        (node_id, racks[node_id], rack)
        for node_id, rack in expected
        if node_id in racks and racks[node_id] != rack
    ]
    if not moved:
        return None
    node_id, before, now = moved[0]
    # The names may be what has changed: those of the application count if the cluster knows any of them.
    names = None if set(rack_names).isdisjoint(racks.values()) else rack_names
    size = ClusterSize.of(racks, names)
    counted = _counted(racks, names)
    return (
        f"broker {node_id} is of {before} in the cluster of these directories, and would be of {now} now"
        f" ({len(moved)} such brokers): start with the numbers that the cluster had, racks={size.racks} and "
        f"brokers_per_rack={max(size.brokers_per_rack, counted)}, and change them with Cluster.scale"
    )


def _counted(racks: Mapping[BrokerId, str | None], rack_names: Sequence[str] | None) -> int:
    """Return how many brokers of each rack were counted when the cluster was made, by its lowest ids.

    >>> _counted({0: "rack-0", 2: "rack-1", 4: "rack-2"}, None)
    2
    """
    return max(
        (
            members[0] // rack
            for rack, members in brokers_by_rack(racks, rack_names).items()
            if rack and members[0] < STRIDE
        ),
        default=1,
    )
