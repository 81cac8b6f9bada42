"""How long requests are held back, in simulated time."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.node.metadata.image import EMPTY_IMAGE
from sparklog.node.metadata.replay import replay_records
from sparklog.node.metadata.schemas import ClientQuotaRecord, QuotaEntityData
from sparklog.node.quotas.request_quotas import RequestQuotas
from sparklog.node.rates import QuotaWindows
from sparklog.protocol.codec.apis import ApiKey

WINDOWS = QuotaWindows(samples=11, window_ms=1000)
RATE = 2 * 1024 * 1024


@pytest.mark.parametrize("request_bytes", [16_384, 65_536])
@pytest.mark.parametrize("connections", [1, 3])
def test_producer_at_full_speed_has_its_quota_from_the_first_second_on(
    request_bytes: int, connections: int
) -> None:
    """Ten seconds' worth at once would be a fifth more than the quota after forty seconds."""
    now_ms = sent = 0
    quotas = RequestQuotas(WINDOWS, lambda: now_ms)
    any_client = (QuotaEntityData(entity_type="client-id", entity_name=None),)
    record = ClientQuotaRecord(entity=any_client, key="producer_byte_rate", value=RATE)
    asyncio.run(quotas.apply(*replay_records(EMPTY_IMAGE, [record], 0, 1)))
    produce: Any = SimpleNamespace(
        api_key=ApiKey.PRODUCE,
        principal=SimpleNamespace(name="ANONYMOUS"),
        client_id="greedy",
        body=SimpleNamespace(acks=-1),
        frame=bytes(request_bytes),
    )
    sent_by_second = {}
    sends_ms = [0] * connections
    while (now_ms := min(sends_ms)) < 60_000:
        meter = quotas.meter(produce)
        sent += request_bytes
        sent_by_second[now_ms // 1000 + 1] = sent
        sends_ms[sends_ms.index(now_ms)] += 1 + (0 if meter is None else meter.throttle_ms)
    shares = {second: sent_by_second[second] / (second * RATE) for second in (5, 10, 20, 40, 60)}
    assert shares == pytest.approx(dict.fromkeys(shares, 1), abs=0.02)
