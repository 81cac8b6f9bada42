"""Certificate renewal: listeners present a changed certificate to new connections, without a restart.

Key and trust stores are checked every `INTERVAL_S`, since renewal tools replace files without notice. A store
that is unreadable, or half replaced and inconsistent, is logged, and tried again with its next change. Open
connections keep their certificates.

Order for the caller, all on one event loop: `watch` each TLS listener; `run` until cancelled.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.node.config.broker import BrokerConfig
from sparklog.node.config.listener_security.listener_tls import listener_tls
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.tls.stores import file_version
from sparklog.node.serving.listener import Listener
from sparklog.protocol.errors import KafkaError

INTERVAL_S: Final = 30.0

logger = logging.getLogger(__name__)


@dataclass
class _Watched:
    config: BrokerConfig
    seen: Mapping[str, tuple[int, int, int] | None]


class CertificateRenewal:
    def __init__(self, secret: ApplicationSecret) -> None:
        self._secret = secret
        self._watched: dict[Listener, _Watched] = {}

    async def watch(self, listener: Listener, config: BrokerConfig) -> None:
        """Watch the stores of a listener, just read; listeners without TLS are ignored."""
        if listener.handshakes is not None:
            files = await asyncio.to_thread(_files, config.of_listener(listener.listener_name))
            self._watched[listener] = _Watched(config, files)

    async def run(self) -> None:
        """Check the stores every `INTERVAL_S`; ends by cancellation."""
        while self._watched:
            await asyncio.sleep(INTERVAL_S)
            await self.check()

    async def check(self) -> None:
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
                logger.error("%s keeps its certificates: %s", listener.name, error)
                continue
            except Exception:  # any content of a file: the other listeners are checked all the same
                logger.exception("%s keeps its certificates", listener.name)
                continue
            assert listener.handshakes is not None and tls is not None
            listener.handshakes.tls = tls
            logger.info("%s presents the renewed certificates of %s", listener.name, ", ".join(files))


def _files(config: BrokerConfig) -> dict[str, tuple[int, int, int] | None]:
    """Return the version of each store of a listener. Blocks."""
    settings = config.tls_settings()
    return {
        store.location: file_version(store)
        for store in (settings.keystore, settings.truststore)
        if store.location
    }
