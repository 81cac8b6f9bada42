"""The check of the tier's object store before brokers start: its URI, its options, and its permissions.

The driver's credentials need not be the executors'; but a missing bucket or permission would otherwise show
minutes later, in the logs of brokers that copy nothing.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparklog.hosting import RemoteStoreError
from sparklog.node.config import BrokerConfig
from sparklog.node.remote_log.object_store import StoreError
from sparklog.node.remote_log.opened_store import check_access, open_store
from sparklog.node.remote_log.uri import RemoteUriError

WITHIN_S: Final = 60.0


def check_remote_store(config: BrokerConfig) -> None:
    """Write, replace, read, list and delete an object of its own in the store, if there is one.

    Raises:
        RemoteStoreError: the URI or an option is not usable, the store refuses something, or does not answer.
    """
    if config.remote_uri is None:
        return
    # A notebook's thread has a running loop of its own.
    with ThreadPoolExecutor(1, "sparklog-remote-store") as thread:
        thread.submit(lambda: asyncio.run(_check(config))).result()


async def _check(config: BrokerConfig) -> None:
    assert config.remote_uri is not None
    try:
        store = open_store(config.remote_uri, config.remote_options)
    except RemoteUriError as error:
        raise RemoteStoreError(str(error)) from error
    try:
        async with asyncio.timeout(WITHIN_S):
            await check_access(store)
    except StoreError as error:
        raise RemoteStoreError(
            f"sparklog.remote.uri={store.uri} can't be used: {error}. Check the URI, and the credentials of "
            "this application (docs/tiering.md)"
        ) from error
    except TimeoutError:
        raise RemoteStoreError(
            f"sparklog.remote.uri={store.uri}: the store has not answered within {WITHIN_S:.0f} s; check "
            "sparklog.remote.option.endpoint and the network"
        ) from None
    finally:
        await store.close()
