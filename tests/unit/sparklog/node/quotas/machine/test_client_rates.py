"""What clients have had: shared as their quotas are, kept when a quota changes, bounded in number."""

from sparklog.node.config.client_quotas import PRODUCER_BYTE_RATE
from sparklog.node.metadata.image import ClientQuotaEntity
from sparklog.node.quotas.machine.client_rates import rate_quotas
from sparklog.node.rates import QuotaWindows, SimpleRate

WINDOWS = QuotaWindows(samples=11, window_ms=1000)
ANY_USER: ClientQuotaEntity = (("user", None),)
ANY_CLIENT: ClientQuotaEntity = (("client-id", None),)


def test_clients_of_a_user_with_a_quota_share_it() -> None:
    """Ten client ids must not be ten quotas; another user's is another."""
    quotas = rate_quotas(PRODUCER_BYTE_RATE, WINDOWS)
    quotas.update({ANY_USER: {PRODUCER_BYTE_RATE: 100.0}})
    first, second, other = (quotas.of(*client, 0) for client in (("u", "a"), ("u", "b"), ("v", "a")))
    assert first is second
    assert first is not None
    assert other is not None
    assert first.record(1500, 0) == 5_000
    assert other.record(0, 0) == 0


def test_quota_that_changes_holds_for_what_was_had_before() -> None:
    """A lowered quota bites at once, and a removed one lets go at once."""
    quotas = rate_quotas(PRODUCER_BYTE_RATE, WINDOWS)
    quotas.update({ANY_CLIENT: {PRODUCER_BYTE_RATE: 1000.0}})
    quota = quotas.of("u", "c", 0)
    assert quota is not None
    assert quota.record(10_000, 0) == 0
    quotas.update({ANY_CLIENT: {PRODUCER_BYTE_RATE: 500.0}})
    lowered = quotas.of("u", "c", 0)
    assert lowered is not None
    assert lowered.record(0, 0) == 10_000
    quotas.update({})
    assert quotas.of("u", "c", 0) is None
    assert not quotas.limit_anybody


def test_idle_clients_are_given_up_when_there_are_many() -> None:
    """Whoever makes up client ids must not fill a broker's memory; who is throttled stays so."""
    quotas = rate_quotas(PRODUCER_BYTE_RATE, WINDOWS)
    quotas.update({ANY_CLIENT: {PRODUCER_BYTE_RATE: 1.0}})
    for number in range(1_000):
        idle = quotas.of("u", f"idle-{number}", 0)
        assert idle is not None
        idle.record(1, 0)
    now_ms = 20_000
    busy = quotas.of("u", "busy", now_ms)
    assert busy is not None
    busy.record(1, now_ms)
    for number in range(1_000):
        assert quotas.of("u", f"new-{number}", now_ms) is not None
    assert quotas.of("u", "busy", now_ms) is busy
    assert len(quotas) < 2_000


def test_answer_larger_than_what_goes_at_once_is_had_once_and_waited_for() -> None:
    """A batch larger than the quota's windows would otherwise keep its consumer from ever going on."""
    quotas = rate_quotas(PRODUCER_BYTE_RATE, WINDOWS)
    quotas.update({ANY_CLIENT: {PRODUCER_BYTE_RATE: 10.0}})
    quota = quotas.of("u", "c", 0)
    assert quota is not None
    assert quota.most_at_once == 100
    assert quota.spend(300, 0) == (True, 20_000)
    assert quota.spend(300, 1_000) == (False, 50_000)
    assert quota.spend(300, 20_000) == (True, 20_000)


def test_producer_that_was_quiet_for_less_than_the_windows_may_make_up_for_it() -> None:
    """A client that sends now and then, and less than its quota, is not held back."""
    quotas = rate_quotas(PRODUCER_BYTE_RATE, WINDOWS, SimpleRate)
    quotas.update({ANY_CLIENT: {PRODUCER_BYTE_RATE: 1000.0}})
    quota = quotas.of("u", "c", 0)
    assert quota is not None
    assert quota.record(1_000, 0) == 0
    assert quota.record(4_000, 5_000) == 0
    assert quota.record(1_000, 5_000) == 1_000
