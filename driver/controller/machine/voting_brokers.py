"""The brokers that may vote in the metadata quorum; the first of each rack does (`first_voters`). Pure."""

from collections.abc import Collection, Mapping, Sequence

from sparklog.node.config.size_request import configured_numbers
from sparklog.node.metadata.cluster_size import beyond
from sparklog.node.metadata.image import MetadataImage
from sparklog.protocol.types import BrokerId


def voting_brokers(
    image: MetadataImage,
    expected: Mapping[BrokerId, str],
    emptied: Collection[BrokerId],
    rack_names: Sequence[str],
) -> dict[BrokerId, str]:
    """Return the brokers that may vote, with their racks: registered ones, and those that are still to come.

    A vote of a broker that never comes is one that others must not give up: so there are none beyond the
    cluster's size that are not registered, since they have left.

    Args:
        image: The newest image.
        expected: The racks of the brokers with which the controller was started.
        emptied: The surplus brokers that are registered and hold no replica.
        rack_names: The names of the first racks.
    """
    registered = {each: broker.rack for each, broker in image.brokers.items() if broker.rack is not None}
    racks = {**expected, **registered}
    left = beyond(racks, *configured_numbers(image.broker_configs(None)), rack_names) - registered.keys()
    return {each: rack for each, rack in racks.items() if each not in left and each not in emptied}
