"""Carries out the effects of `Ownership`: takes the prefix before brokers start, renews it, marks it stopped.

This module decides nothing. A store that does not answer delays beats, never the controller: each call has
the time of a beat, and the loop goes on meanwhile.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparklog.driver.controller.broker_liveness import refuses
from sparklog.hosting import StartError
from sparklog.node.clocks import monotonic_ms
from sparklog.node.endpoints import Endpoint, SecurityProtocol
from sparklog.node.remote_log.machine.ownership import (
    OWNER_NAME,
    Lost,
    Owner,
    OwnerFormatError,
    Ownership,
    OwnershipEffect,
    ReadOwner,
    Refused,
    Stopped,
    Taken,
    WriteOwner,
    decode_owner,
    encode_owner,
)
from sparklog.node.remote_log.object_store import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StaleObjectError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)

TICK_S: Final = 0.1
CALL_S: Final = 10.0
"""The longest wait for the store in one call."""
PROBE_S: Final = 0.5

logger = logging.getLogger(__name__)


def host_identity() -> str:
    """Return a name of this host that another process has only if both share their loopback addresses."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    network = Path("/proc/self/ns/net")
    try:
        return f"{boot.read_text().strip()}/{network.stat().st_ino}"
    except OSError:  # no Linux: no owner is ever taken to be on this host
        return ""


class OwnerLease:
    """The ownership of one controller; belongs to its loop, on which it begins at once."""

    def __init__(
        self, store: ObjectStore, ownership: Ownership, host: str, on_lost: Callable[[str], None]
    ) -> None:
        """`on_lost` gets the reason why this application has to stop copying."""
        self._store = store
        self._ownership = ownership
        self._host = host
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self._taken: asyncio.Future[Taken] = loop.create_future()
        self._stopped = asyncio.Event()
        self._wake = asyncio.Event()
        self._announced_wait: Owner | None = None
        self.failure: str | None = None
        """The last error of the store; None after a success."""
        self._task = loop.create_task(self._run())

    @property
    def missing(self) -> str | None:
        """The reason why the prefix is not taken yet, as a sentence; None once it is."""
        if self._ownership.owner_epoch is not None:
            return None
        if (owner := self._ownership.waits_for) is not None:
            return (
                f"{self._store.uri} belongs to the application at {owner.address}, which may have ended: "
                f"it is taken once that has written nothing for {owner.session_ms / 1_000:g} s"
            )
        return f"{self._store.uri} is not taken yet" + (f": {self.failure}" if self.failure else "")

    @property
    def owner_epoch(self) -> int | None:
        return self._ownership.owner_epoch

    async def taken(self) -> Taken:
        """Wait until the prefix is this application's.

        Raises:
            StartError: another application lives there, or the store refuses to be used.
        """
        return await asyncio.shield(self._taken)

    async def is_held(self) -> bool:
        """Return whether the store names this application as its owner at this moment.

        `on_lost` comes with a beat only: an application that was cut off from the store, or suspended, can
        be back before its next beat.

        Raises:
            StoreError: the owner cannot be read.
        """
        if not self._ownership.is_owned:
            return False
        try:
            found = await self._store.get(OWNER_NAME)
            return self._ownership.is_own(decode_owner(found.data))
        except (ObjectMissingError, OwnerFormatError):
            return False

    def cluster_known(self, cluster_id: str) -> None:
        self._ownership.cluster_known(cluster_id)

    async def stop(self, timeout_s: float) -> None:
        """Mark the owner stopped, if the store lets it happen within `timeout_s`; end."""
        if self._ownership.is_owned and not self._task.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    self._wake.set()
                    await self._stopped.wait()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                now_ms = monotonic_ms()
                effects = (
                    self._ownership.stop(now_ms) if self._wake.is_set() else self._ownership.tick(now_ms)
                )
                await self._carry_out(effects)
                if self._stopped.is_set():
                    return
                await asyncio.sleep(TICK_S)
        except Exception as error:
            if not self._taken.done():
                self._taken.set_exception(error)
                return
            logger.exception("The ownership of %s is not renewed any more", self._store.uri)
            self._on_lost(f"the ownership of {self._store.uri} is not renewed: {error}")

    async def _carry_out(self, effects: Sequence[OwnershipEffect]) -> None:
        queue = list(effects)
        while queue:
            match queue.pop(0):
                case ReadOwner():
                    queue += await self._read()
                case WriteOwner() as write:
                    queue += await self._write(write)
                case Taken() as taken:
                    logger.info(
                        "%s is this application's, owner epoch %d", self._store.uri, taken.owner_epoch
                    )
                    self._taken.set_result(taken)
                case Refused(owner):
                    raise StartError(
                        f"sparklog.remote.uri {self._store.uri} belongs to another application, which runs "
                        f"at {owner.address} (cluster {owner.cluster_id}): stop that one first, or name "
                        "another prefix"
                    )
                case Lost(owner):
                    whose = "is gone" if owner is None else f"is that of the application at {owner.address}"
                    self._on_lost(f"{OWNER_NAME} in {self._store.uri} {whose}")
                case Stopped():
                    self._stopped.set()

    async def _read(self) -> Sequence[OwnershipEffect]:
        try:
            async with asyncio.timeout(CALL_S):
                try:
                    found = await self._store.get(OWNER_NAME)
                except ObjectMissingError:
                    self.failure = None
                    return self._ownership.owner_read(None, None, monotonic_ms())
        except (StoreError, TimeoutError) as error:
            return self._failed(error)
        self.failure = None
        try:
            owner = decode_owner(found.data)
        except OwnerFormatError as error:
            raise StartError(f"sparklog.remote.uri {self._store.uri}: {error}") from error
        is_gone = not owner.is_stopped and await self._is_gone(owner)
        effects = self._ownership.owner_read(owner, found.version, monotonic_ms(), is_gone=is_gone)
        if self._ownership.waits_for is not None and self._announced_wait is None:
            self._announced_wait = owner
            logger.warning("The start waits: %s", self.missing)
        return effects

    async def _write(self, write: WriteOwner) -> Sequence[OwnershipEffect]:
        data = encode_owner(write.owner)
        try:
            async with asyncio.timeout(CALL_S):
                if write.version is None:
                    version = await self._store.create(OWNER_NAME, data)
                else:
                    version = await self._store.replace(OWNER_NAME, data, write.version)
        except (ObjectExistsError, StaleObjectError):
            return self._ownership.owner_write_refused(monotonic_ms())
        except (StoreError, TimeoutError) as error:
            return self._failed(error)
        self.failure = None
        return self._ownership.owner_written(version, monotonic_ms())

    def _failed(self, error: StoreError | TimeoutError) -> Sequence[OwnershipEffect]:
        if isinstance(error, StoreRefusedError) and not self._taken.done():
            raise StartError(f"sparklog.remote.uri: {error}") from error
        if isinstance(error, TimeoutError):
            error = StoreUnavailableError(f"{self._store.uri} did not answer within {CALL_S:g} s")
        if self.failure is None:
            logger.error("%s of %s cannot be kept; retrying: %s", OWNER_NAME, self._store.uri, error)
        self.failure = str(error)
        return self._ownership.store_failed(monotonic_ms())

    async def _is_gone(self, owner: Owner) -> bool:
        """Whether the owner was on this host, and does not listen at its address any more."""
        if not self._host or owner.host != self._host:
            return False
        host, _, port = owner.address.rpartition(":")
        endpoint = Endpoint("owner", host.strip("[]"), int(port), SecurityProtocol.PLAINTEXT)
        if self._ownership.has_address_of(owner):
            # A connection would come to this application.
            return await _is_one_address(endpoint)
        return await refuses(endpoint, PROBE_S)


async def _is_one_address(endpoint: Endpoint) -> bool:
    """Whether two processes that bind the endpoint's name bind the same address, which one of them can."""
    try:
        async with asyncio.timeout(PROBE_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                endpoint.host, endpoint.port, type=socket.SOCK_STREAM
            )
    except (OSError, TimeoutError, ValueError):  # the last: no host name can be so
        return False
    return len({address for *_, address in found}) == 1
