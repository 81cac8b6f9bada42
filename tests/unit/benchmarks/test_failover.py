"""The time until a broker is back must be the cluster's own, not what the benchmark waits for meanwhile."""

from benchmarks.failover import PARTITIONS, Recovery, SeenPartition

EVERYBODY = frozenset({0, 1, 2})
WITHOUT_0 = frozenset({1, 2})


def partitions(leader: int, isr: frozenset[int]) -> list[SeenPartition]:
    """Return a partition that is as said, and others that broker 1 leads with everybody in sync."""
    return [SeenPartition(leader, isr), *[SeenPartition(1, EVERYBODY)] * (PARTITIONS - 1)]


def looked(*seen: tuple[list[SeenPartition], float, float]) -> Recovery:
    """Return what comes of looks: partitions, when the last records were acknowledged, the time."""
    recovery = Recovery(victim=0)
    for found, acknowledged_s, now_s in seen:
        recovery.look(found, [acknowledged_s] * PARTITIONS, now_s)
    return recovery


def test_recovery_broker_that_is_still_believed_in_is_not_back() -> None:
    """Apache Kafka has a dead broker in every ISR for nine seconds: that is not its coming back."""
    assert looked((partitions(0, EVERYBODY), 0.9, 1.0)).back_s is None


def test_recovery_broker_that_left_an_isr_is_back_since_the_first_look_that_has_it_in_all() -> None:
    """Neither what is waited for afterwards nor how long it must stay back is added."""
    recovery = looked(
        (partitions(0, EVERYBODY), 0.9, 1.0),
        (partitions(1, WITHOUT_0), 0.9, 9.0),
        (partitions(1, EVERYBODY), 9.5, 12.0),
        (partitions(1, EVERYBODY), 14.0, 14.0),
    )
    assert recovery.back_s == 12.0
    assert (recovery.is_over(13.9), recovery.is_over(14.1)) == (False, True)


def test_recovery_broker_that_came_back_between_two_looks_is_back() -> None:
    """Ours is away for a second, and who is asked may be the one that was killed."""
    recovery = looked((partitions(0, EVERYBODY), 0.9, 1.0), (partitions(1, EVERYBODY), 1.9, 2.0))
    assert recovery.back_s == 2.0


def test_recovery_broker_that_is_behind_says_that_the_victim_is_back_and_is_not_believed() -> None:
    """Looks go to any broker, and one may not know yet what another has said already."""
    recovery = looked(
        (partitions(1, WITHOUT_0), 0.9, 9.0),
        (partitions(0, EVERYBODY), 0.9, 9.1),
        (partitions(1, WITHOUT_0), 0.9, 9.2),
    )
    assert recovery.back_s is None


def test_recovery_nobody_answers_tells_nothing() -> None:
    """Asked of the broker that was killed: that neither has it out of an ISR nor back."""
    assert looked(([], 0.9, 1.0), (partitions(0, EVERYBODY), 0.9, 1.1)) == Recovery(victim=0)


def test_recovery_written_again_only_by_records_since_others_were_seen_to_lead() -> None:
    """A record of before the fault may be acknowledged late; one that is written to the new leader counts."""
    led, led_elsewhere = partitions(0, EVERYBODY), partitions(1, WITHOUT_0)
    assert looked((led, 0.5, 1.0), (led_elsewhere, 0.5, 2.0)).written_again_s is None
    assert looked((led_elsewhere, 0.5, 2.0), (led_elsewhere, 1.9, 2.1)).written_again_s is None
    assert looked((led_elsewhere, 0.5, 2.0), (led_elsewhere, 2.1, 2.2)).written_again_s == 2.2


def test_recovery_without_a_leader_is_not_written_again() -> None:
    """What had a leader and lost it again has to be seen with one anew."""
    led_elsewhere, leaderless = partitions(1, WITHOUT_0), partitions(-1, WITHOUT_0)
    recovery = looked((led_elsewhere, 1.0, 2.0), (leaderless, 2.1, 2.2), (led_elsewhere, 2.1, 2.3))
    assert recovery.written_again_s is None
