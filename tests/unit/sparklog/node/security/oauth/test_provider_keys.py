"""Keys of a provider that come, change, and can't be had for a while."""

import asyncio
from queue import Queue

import pytest

from sparklog.node.exponential_backoff import ExponentialBackoff
from sparklog.node.security.oauth.http import ProviderError, fetched
from sparklog.node.security.oauth.provider_keys import ProviderKeys
from sparklog.node.security.tls.settings import TlsSettings
from tests.identity_provider import IdentityProvider
from tests.unit.sparklog.node.serving.serving import DEADLINE_S, run, until


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
        keys = ProviderKeys("test", fetch, 1, ExponentialBackoff(1, 1))
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


@pytest.mark.parametrize(("min_expedited_ms", "fetches"), [(1, 2), (3_600_000, 1)])
def test_unknown_key_is_fetched_once_in_a_time(min_expedited_ms: int, fetches: int) -> None:
    """A client that sends made-up keys must not have the provider asked as often as it likes."""
    key_sets = [IdentityProvider().key_set(), IdentityProvider("key-2").key_set()]
    left = list(key_sets)

    async def scenario() -> None:
        backoff = ExponentialBackoff(3_600_000, 3_600_000)
        keys = ProviderKeys("test", lambda: left.pop(0), 3_600_000, backoff, min_expedited_ms)
        running = asyncio.ensure_future(keys.run())
        await keys.tried.wait()
        assert keys.find("key-1", "RS256") is not None
        for _ in range(3):
            assert keys.find("key-2", "RS256") is None
        if fetches > 1:
            await until(lambda: keys.find("key-2", "RS256") is not None)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario())
    assert len(key_sets) - len(left) == fetches


def test_keys_are_fetched_over_http() -> None:
    """As providers tell them; one that is not there is named by its address, and may come back."""
    provider = IdentityProvider()
    with provider.serving() as address:
        assert fetched(f"{address}/keys", TlsSettings()) == provider.key_set()
    with pytest.raises(ProviderError, match=address) as failed:
        fetched(f"{address}/keys", TlsSettings())
    assert not failed.value.is_final
