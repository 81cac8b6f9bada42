"""What is told of clients that have a quota."""

import asyncio
from types import SimpleNamespace
from typing import Any

from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import ClientQuotaRecord, QuotaEntityData
from sparklog.node.metrics.quotas import BYTES_CONSUMED, THROTTLE_TIMES
from sparklog.node.metrics.registry import values_of_samples
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.rates import QuotaWindows

WINDOWS = QuotaWindows(samples=11, window_ms=1000)


def limited(rate: float) -> RequestQuotas:
    """Return the quotas of a node on which each client id may have so many bytes a second."""
    any_client = (QuotaEntityData(entity_type="client-id", entity_name=None),)
    record = ClientQuotaRecord(entity=any_client, key="consumer_byte_rate", value=rate)
    image, delta = replay_records(EMPTY_IMAGE, [record], 0, 1)
    quotas = RequestQuotas(WINDOWS, lambda: 0)
    asyncio.run(quotas.apply(image, delta))
    return quotas


def fetched(quotas: RequestQuotas, client_id: str, size_bytes: int) -> int:
    """Have a client fetch something; return how long it is to wait."""
    request: Any = SimpleNamespace(principal=SimpleNamespace(name="ANONYMOUS"), client_id=client_id)
    quota = quotas.consumer(request)
    assert quota is not None
    return quota.record(size_bytes, 0)


def test_client_with_a_quota_shows_its_rate_and_how_long_it_waits() -> None:
    """A quota that is too small looks like a slow cluster, unless somebody says so."""
    quotas = limited(100)
    throttle_ms = fetched(quotas, "greedy", 2_000)
    assert throttle_ms > 0
    assert fetched(quotas, "modest", 500) == 0
    shown = values_of_samples(quotas.samples(0))
    greedy, modest = ({"user": "", "client-id": name} for name in ("greedy", "modest"))
    throttle_time = THROTTLE_TIMES["Fetch"]
    assert shown == {
        BYTES_CONSUMED.of(**greedy): 200.0,
        throttle_time.of(**greedy): throttle_ms,
        BYTES_CONSUMED.of(**modest): 50.0,
        throttle_time.of(**modest): 0.0,
    }
    # Nobody has waited since.
    assert values_of_samples(quotas.samples(0))[throttle_time.of(**greedy)] == 0.0


def test_figures_of_clients_are_bounded_and_those_of_the_greediest() -> None:
    """Client ids are for anybody to choose, and figures go to the driver every second."""
    quotas = limited(1_000_000)
    for number in range(500):
        fetched(quotas, f"client-{number}", 1_000 + number)
    shown = values_of_samples(quotas.samples(0))
    assert len(shown) == 100
    assert BYTES_CONSUMED.of(**{"user": "", "client-id": "client-499"}) in shown
