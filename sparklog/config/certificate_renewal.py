"""Certificates whose files have changed: listeners show the new ones to new connections, without a restart.

Files are looked at every `INTERVAL_S`, since whoever renews certificates replaces them and tells nobody. What
can't be read, or contradicts itself because only half of it is there yet, changes nothing: it is logged, and
looked at again with the next change. Connections that are there keep what they were made with.

Order for the caller, all on one event loop: `watch` each listener of TLS; `run` until cancelled.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.config.broker import BrokerConfig
from sparklog.config.listener_tls import listener_tls
from sparklog.errors import KafkaError
from sparklog.security.inside import ApplicationSecret
from sparklog.security.tls.stores import file_version
from sparklog.wire.listener import Listener

INTERVAL_S: Final = 30.0

logger = logging.getLogger(__name__)


@dataclass
class _Watched:
    config: BrokerConfig
    seen: Mapping[str, tuple[int, int, int] | None]


class CertificateRenewal:
    """What the listeners of one process show."""

    def __init__(self, secret: ApplicationSecret) -> None:
        self._secret = secret
        self._watched: dict[Listener, _Watched] = {}

    async def watch(self, listener: Listener, config: BrokerConfig) -> None:
        """Look after a listener, whose certificates were read a moment ago; one without TLS is left alone."""
        if listener.handshakes is not None:
            files = await asyncio.to_thread(_files, config.of_listener(listener.listener_name))
            self._watched[listener] = _Watched(config, files)

    async def run(self) -> None:
        """Look at the files from time to time; ends by cancellation."""
        while self._watched:
            await asyncio.sleep(INTERVAL_S)
            await self.check()

    async def check(self) -> None:
        """Look at the files now."""
        for listener, watched in self._watched.items():
            files = await asyncio.to_thread(_files, watched.config.of_listener(listener.listener_name))
            if files == watched.seen:
                continue
            watched.seen = files
            try:
                tls = await asyncio.to_thread(
                    listener_tls,
                    watched.config,
                    listener.listener_name,
                    listener.security_protocol,
                    self._secret,
                )
            except KafkaError as error:
                logger.error("%s goes on with the certificates it has: %s", listener.name, error)
                continue
            except Exception:  # whatever a file may hold: nobody would look at the others any more
                logger.exception("%s goes on with the certificates it has", listener.name)
                continue
            assert listener.handshakes is not None and tls is not None
            listener.handshakes.tls = tls
            logger.info("%s shows the certificates that are in %s now", listener.name, ", ".join(files))


def _files(config: BrokerConfig) -> dict[str, tuple[int, int, int] | None]:
    """Return what tells each file of a listener from its next version. Blocks."""
    settings = config.tls_settings()
    return {
        store.location: file_version(store)
        for store in (settings.keystore, settings.truststore)
        if store.location
    }
