"""Where the replicas of new partitions go.

The rules, the stronger first:

1. No broker holds two replicas of a partition.
2. No rack holds two replicas of a partition while there are racks without one (a rack is a fault domain:
   Spark takes its brokers down together). Brokers without a rack share one nameless rack.
3. The first replica, which leads, is an unfenced broker, and the partitions of one request are led by all
   unfenced brokers in turn, neighbours from different racks.
4. Racks with an unfenced broker come before racks without one, and in a rack an unfenced broker before a
   fenced one.
5. The followers of one broker's partitions are shifted: the next partition it leads has its second replica
   in another rack, so that a dead broker's leaders spread over all others.
6. Any replica still open goes to the broker with the fewest replicas.

Placement is a function of the cluster's state alone. Kafka's placer starts at random places; this one
starts where the fewest partitions lead, which keeps many small topics even as well.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId


class UsableBroker(NamedTuple):
    """A registered broker that is not shutting down."""

    broker_id: BrokerId
    rack: str | None
    fenced: bool


class Load:
    """The numbers of partitions that each broker is the preferred leader of, and of its replicas."""

    def __init__(self, partitions: Iterable[Sequence[BrokerId]] = ()) -> None:
        """Count `partitions`, each given as its replicas, the preferred leader first."""
        self.led: Counter[BrokerId] = Counter()
        self.held: Counter[BrokerId] = Counter()
        for replicas in partitions:
            self.add(replicas)

    def add(self, replicas: Sequence[BrokerId]) -> None:
        self._count(replicas, 1)

    def remove(self, replicas: Sequence[BrokerId]) -> None:
        self._count(replicas, -1)

    def copy(self) -> "Load":
        copied = Load()
        copied.led.update(self.led)
        copied.held.update(self.held)
        return copied

    def _count(self, replicas: Sequence[BrokerId], times: int) -> None:
        self.led[replicas[0]] += times
        for broker_id in replicas:
            self.held[broker_id] += times


def place(
    brokers: Iterable[UsableBroker],
    partition_count: int,
    replication_factor: int,
    load: Load,
    same_topic: Iterable[Sequence[BrokerId]] = (),
) -> list[tuple[BrokerId, ...]]:
    """Return the replicas of `partition_count` new partitions, the preferred leader first.

    `load` is that of the whole cluster, and counts the new partitions afterwards; `same_topic` are the
    replicas of the partitions of the topic that is extended, so that the new ones are led by the brokers
    that lead fewest of the old ones.

    >>> racks = [UsableBroker(0, "a", False), UsableBroker(1, "b", False), UsableBroker(2, "c", False)]
    >>> place(racks, partition_count=4, replication_factor=2, load=Load())
    [(0, 1), (1, 2), (2, 0), (0, 2)]

    Raises:
        KafkaError: INVALID_REPLICATION_FACTOR: fewer brokers than replicas, or no unfenced broker.
    """
    usable = sorted(brokers)
    _check_possible(usable, replication_factor)
    racks = _brokers_by_rack(usable)
    leaders = [broker for broker in _interleaved(racks) if not broker.fenced]
    led_in_topic = Load(same_topic).led

    first = min(
        range(len(leaders)),
        key=lambda index: (led_in_topic[leaders[index].broker_id], load.led[leaders[index].broker_id], index),
    )
    placed: list[tuple[BrokerId, ...]] = []
    for number in range(partition_count):
        leader = leaders[(first + number) % len(leaders)]
        replicas = _with_followers(leader, racks, replication_factor, load.led[leader.broker_id], load.held)
        load.add(replicas)
        placed.append(replicas)
    return placed


def validate_manual_assignment(
    broker_ids: Sequence[BrokerId],
    registered: Mapping[BrokerId, object],
    replication_factor: int | None,
    surplus: Collection[BrokerId] = (),
) -> None:
    """Check the replicas that a request names for one partition.

    `replication_factor` is that of the topic's other partitions, if there are any. Brokers in `surplus`
    leave the cluster and get no replica.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    problem: str | None = None
    leaving = [broker_id for broker_id in broker_ids if broker_id in surplus]
    unknown = [broker_id for broker_id in broker_ids if broker_id not in registered]
    repeated = [broker_id for broker_id, times in Counter(broker_ids).items() if times > 1]
    if not broker_ids:
        problem = "includes an empty replica list."
    elif unknown:
        problem = f"includes broker {unknown[0]}, but no such broker is registered."
    elif leaving:
        problem = f"includes broker {leaving[0]}, which leaves the cluster."
    elif repeated:
        problem = f"includes the broker {repeated[0]} more than once."
    elif replication_factor is not None and len(broker_ids) != replication_factor:
        problem = (
            f"includes a partition with {len(broker_ids)} replica(s), but this is not consistent with "
            f"previous partitions, which have {replication_factor} replica(s)."
        )
    if problem is not None:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"The manual partition assignment {problem}")


def _check_possible(usable: Sequence[UsableBroker], replication_factor: int) -> None:
    problem: str | None = None
    if all(broker.fenced for broker in usable):
        problem = "no broker is available: " + (
            "all are fenced." if usable else "none is registered, or all are shutting down."
        )
    elif replication_factor > len(usable):
        problem = f"the cluster has only {len(usable)} broker(s) that can hold replicas."
    if problem is not None:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"Unable to replicate the partition {replication_factor} time(s): {problem}",
        )


def _brokers_by_rack(usable: Iterable[UsableBroker]) -> list[list[UsableBroker]]:
    racks: dict[str | None, list[UsableBroker]] = {}
    for broker in usable:
        racks.setdefault(broker.rack, []).append(broker)
    return [racks[rack] for rack in sorted(racks, key=lambda rack: (rack is not None, rack or ""))]


def _interleaved(racks: Sequence[Sequence[UsableBroker]]) -> list[UsableBroker]:
    """Return the first broker of each rack, then the second of each, and so on."""
    depth = max(len(rack) for rack in racks)
    return [rack[index] for index in range(depth) for rack in racks if index < len(rack)]


def _with_followers(
    leader: UsableBroker,
    racks: Sequence[Sequence[UsableBroker]],
    replication_factor: int,
    shift: int,
    held: Mapping[BrokerId, int],
) -> tuple[BrokerId, ...]:
    own = next(index for index, rack in enumerate(racks) if leader in rack)
    others = [*racks[own + 1 :], *racks[:own]]
    if others:
        shift %= len(others)
        others = others[shift:] + others[:shift]
    others.sort(key=lambda rack: all(broker.fenced for broker in rack))
    chosen = [leader.broker_id]
    while len(chosen) < replication_factor:
        for rack in [*others, racks[own]]:
            free = [broker for broker in rack if broker.broker_id not in chosen]
            if free and len(chosen) < replication_factor:
                best = min(free, key=lambda broker: (broker.fenced, held[broker.broker_id], broker.broker_id))
                chosen.append(best.broker_id)
    return tuple(chosen)
