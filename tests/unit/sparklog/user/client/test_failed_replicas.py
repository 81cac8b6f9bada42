"""Followers that a process avoids."""

from sparklog.user.client.failed_replicas import AVOIDED_FOR_S, FailedReplicas


def test_failed_replica_is_avoided_for_a_while_and_then_tried_again() -> None:
    """A restarted follower is near again; one that stays bad costs one attempt a minute."""
    now_s = 5.0
    failed = FailedReplicas(lambda: now_s)
    failed.add(("a", 9092))
    failed.add(None)
    assert ("a", 9092) in failed
    assert ("b", 9092) not in failed
    assert None not in failed
    now_s += AVOIDED_FOR_S
    assert ("a", 9092) not in failed
