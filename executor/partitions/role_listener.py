"""The listeners of a replica's roles, which load, fetch or wait by them.

Listeners stand in an ordered list (`ReplicaHost.listeners`). They are called on the event loop, after the
replica has changed; they must not block, and must not change its role.

- One of `became_leader`, `led_on` and `became_follower` is called once a leader epoch. The first and the last
  end the former role, without a `stopped` in between.
- `suspended` and `resumed` leave the role as it is: for one that becomes leader while
  suspended `became_leader` is called, but it may serve only from `resumed` on.
- After `stopped` it neither leads nor follows, until it gets a role again, or is `deleted`.
- No call follows `deleted`.

Source: Kafka's PartitionListener, and GroupCoordinator's onElection and onResignation.
"""

from typing import Generic, TypeVar

_Replica = TypeVar("_Replica", contravariant=True)


class RoleListener(Generic[_Replica]):
    """The changes of roles of this broker's replicas; each does nothing unless overridden."""

    def became_leader(self, replica: _Replica) -> None:
        """It leads, in a new leader epoch."""

    def led_on(self, replica: _Replica) -> None:
        """It led in the epoch before, and leads in this one with the same log.

        Does as `became_leader` unless overridden. The end of a reassignment begins such an epoch.
        """
        self.became_leader(replica)

    def became_follower(self, replica: _Replica) -> None:
        """It follows in a new leader epoch, perhaps without a leader."""

    def stopped(self, replica: _Replica) -> None:
        """Its log failed or is damaged, or this broker shuts down."""

    def suspended(self, replica: _Replica) -> None:
        """Nothing may be served or acknowledged: the lease has run out, or the tier is not known yet."""

    def resumed(self, replica: _Replica) -> None:
        """It may serve again."""

    def deleted(self, replica: _Replica) -> None: ...

    def isr_changed(self, replica: _Replica) -> None:
        """It leads as before; its ISR, its replicas or its settings may have changed."""

    def low_watermark_moved(self, replica: _Replica) -> None:
        """It leads; a replica's log start offset has changed, or other replicas count."""
