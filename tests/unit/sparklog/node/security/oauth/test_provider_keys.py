"""Keys of a provider that come, change, and can't be had for a while."""

import asyncio
from queue import Queue

import pytest

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.security.oauth.http import ProviderError, fetched
from sparklog.node.security.oauth.machine.refresh_times import MIN_EXPEDITED_MS, RefreshTimes
from sparklog.node.security.oauth.provider_keys import ProviderKeys
from sparklog.node.security.tls.settings import TlsSettings
from tests.identity_provider import IdentityProvider
from tests.unit.sparklog.node.serving.serving import DEADLINE_S, run, until

BACKOFF = ExponentialBackoff(100, 1000)


def test_refresh_times_follow_successes_failures_and_missing_keys() -> None:
    """Whoever sends made-up keys must not have the provider asked as often as he likes."""
    times = RefreshTimes(60_000, BACKOFF)
    assert times.due_ms == 0
    times.begun(0)
    times.failed(5)
    assert times.due_ms == 105
    times.failed(105)
    assert times.due_ms == 305
    times.begun(305)
    times.fetched(310)
    assert times.due_ms == 60_310
    assert not times.missing(305 + MIN_EXPEDITED_MS - 1)
    assert times.due_ms == 60_310
    assert times.missing(305 + MIN_EXPEDITED_MS)
    assert times.due_ms == 305 + MIN_EXPEDITED_MS
    times.begun(times.due_ms)
    times.fetched(times.due_ms)
    times.failed(0)
    assert times.due_ms == 100


def test_keys_that_can_not_be_had_leave_those_that_are_there() -> None:
    """The provider may be down: what it has signed is as good as before."""
    provider, other = IdentityProvider(), IdentityProvider("key-2")
    answers: Queue[bytes | Exception] = Queue()

    def fetch() -> bytes:
        answer = answers.get(timeout=DEADLINE_S)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def scenario() -> None:
        keys = ProviderKeys("test", fetch, RefreshTimes(1, ExponentialBackoff(1, 1)))
        running = asyncio.ensure_future(keys.run())
        answers.put(ProviderError("down"))
        await keys.tried.wait()
        assert keys.find("key-1", "RS256") is None
        answers.put(provider.key_set())
        await until(lambda: keys.find("key-1", "RS256") is not None)
        for useless in (b"nonsense", OSError("down"), ProviderError("down"), KeyError("x")):
            answers.put(useless)
        await until(answers.empty)
        assert keys.find("key-1", "RS256") is not None
        answers.put(other.key_set())
        await until(lambda: keys.find("key-2", "RS256") is not None)
        assert keys.find("key-1", "RS256") is None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        answers.put(b"")  # for whoever fetches at this moment

    run(scenario())


def test_keys_are_fetched_over_http() -> None:
    """As providers tell them; one that is not there is named by its address, and may come back."""
    provider = IdentityProvider()
    with provider.serving() as address:
        assert fetched(f"{address}/keys", TlsSettings()) == provider.key_set()
    with pytest.raises(ProviderError, match=address) as failed:
        fetched(f"{address}/keys", TlsSettings())
    assert not failed.value.is_final
