"""The seam for whatever loads, fetches or waits by a partition's role on this broker.

Listeners stand in an ordered list (`ReplicaHost.listeners`). They are told on the event loop, when the
replica is already what they are told; they must not block, and must not change its role.

- `became_leader` and `became_follower` are told once a leader epoch. Whatever it was before is over then,
  without a `stopped` in between.
- `suspended` and `resumed` leave the role as it is: one that becomes leader while suspended is told of
  that, and that it may serve only with `resumed`.
- After `stopped` it neither leads nor follows, until it is told to be something again, or `deleted`.
- Nothing is told after `deleted`.

Source: Kafka's PartitionListener, and GroupCoordinator's onElection and onResignation.
"""

from typing import Generic, TypeVar

_Replica = TypeVar("_Replica", contravariant=True)


class RoleListener(Generic[_Replica]):
    """Hears of the roles of this broker's replicas; what it does not define, it does not care for."""

    def became_leader(self, replica: _Replica) -> None:
        """It leads, in a new leader epoch."""

    def became_follower(self, replica: _Replica) -> None:
        """It follows in a new leader epoch, perhaps nobody."""

    def stopped(self, replica: _Replica) -> None:
        """Its log failed or is damaged, or this broker shuts down."""

    def suspended(self, replica: _Replica) -> None:
        """This broker's lease has run out: nothing may be served or acknowledged."""

    def resumed(self, replica: _Replica) -> None:
        """This broker holds its lease again."""

    def deleted(self, replica: _Replica) -> None:
        """It is no longer this broker's."""

    def isr_changed(self, replica: _Replica) -> None:
        """It leads as before; its ISR, its replicas or what is asked of them may be others than before."""

    def low_watermark_moved(self, replica: _Replica) -> None:
        """It leads, and its log starts elsewhere on some replica, or other replicas count."""
