"""Brokers whose rack is another one in the cluster's metadata than in this application. Pure.

Their ids are counted by racks and brokers of a rack. A start with other numbers than the cluster has
could give an id to another rack, and then two replicas of a partition could lie in one rack.
"""

from collections.abc import Iterable

from sparklog.node.metadata.cluster_size import ClusterSize
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId


def rack_conflict(image: MetadataImage, expected: Iterable[tuple[BrokerId, str]]) -> str | None:
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
    size = ClusterSize.of(racks)
    return (
        f"broker {node_id} is of {before} in the cluster of these directories, and would be of {now} now"
        f" ({len(moved)} such brokers): start with the numbers that the cluster had, racks={size.racks} and "
        f"brokers_per_rack={size.brokers_per_rack}, and change them with Cluster.scale"
    )
