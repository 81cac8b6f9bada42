"""An object store of a cloud (S3, Google Cloud Storage, Azure) through obstore, whose threads do the work.

Conditional writes are sent once. An object above `WHOLE_BYTES` goes up in parts, each of which is repeated
by itself: for those the store has no condition, so existence is checked before. Their names must be unique
anyway, as those of segments are.

Errors are classified by obstore's classes and, where those are too coarse, by the provider's error code in
the message.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import GCSStore

from sparklog.node.remote_log.cloud_options import CloudClients, described
from sparklog.node.remote_log.object_store import (
    ListedObject,
    ObjectExistsError,
    ObjectMissingError,
    StaleObjectError,
    StoredObject,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    Version,
)
from sparklog.node.remote_log.uri import RemoteUri

WHOLE_BYTES: Final = 8 * 1024 * 1024
"""Objects up to this size are sent in one request, under the condition that they are new."""
_PART_BYTES: Final = 8 * 1024 * 1024
_PARTS_AT_A_TIME: Final = 3
"""With `_PART_BYTES` the memory of an upload; a part must be sent within the time limit of a request."""
_LONGEST_REASON: Final = 400
_QUERY: Final = re.compile(r"(https?://[^\s?]*)\?\S*")
"""In a URL; with shared access signatures it is a secret."""
_ERROR_BODY: Final = re.compile(r"<\?xml.*?<Code>(.*?)</Code>.*?<Message>(.*?)</Message>.*", re.DOTALL)
_INSTANCE_METADATA: Final = ("http://169.254.", "http://metadata.google.internal", "http://[fd00:ec2::254]")
"""Servers from which credentials come in a cloud's machines, the last of the provider's chain."""
_MISSING_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist")
_REFUSALS: Final = (
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "405 Method Not Allowed",
    "501 Not Implemented",
    "Received redirect",  # another region than the bucket's
)


class CloudStore:
    def __init__(self, uri: RemoteUri, clients: CloudClients) -> None:
        self._uri: Final = str(uri)
        self._clients: Final = clients
        # Google's condition is the object's generation, which obstore calls version; others compare e-tags.
        self._by_generation: Final = isinstance(clients.repeating, GCSStore)

    @property
    def uri(self) -> str:
        return self._uri

    async def create(self, name: str, data: bytes | memoryview | Path) -> Version:
        size_bytes = data.stat().st_size if isinstance(data, Path) else len(data)
        if size_bytes > WHOLE_BYTES:
            return await self._create_in_parts(name, data)
        with self._errors("create", name):
            written = await obstore.put_async(
                self._clients.unrepeated, name, data, mode="create", use_multipart=False
            )
        return self._version_of(written, name)

    async def _create_in_parts(self, name: str, data: bytes | memoryview | Path) -> Version:
        with self._errors("create", name):
            try:
                await obstore.head_async(self._clients.repeating, name)
            except (FileNotFoundError, NotFoundError) as error:
                if _is_about_bucket(error):
                    raise
            else:
                raise ObjectExistsError(f"{self._uri}: {name} exists")
            written = await obstore.put_async(
                self._clients.repeating,
                name,
                data,
                use_multipart=True,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_A_TIME,
            )
        return self._version_of(written, name)

    async def replace(self, name: str, data: bytes, version: Version) -> Version:
        try:
            with self._errors("replace", name):
                written = await obstore.put_async(
                    self._clients.unrepeated,
                    name,
                    data,
                    mode={"version": version} if self._by_generation else {"e_tag": version},
                    use_multipart=False,
                )
        except ObjectMissingError as error:
            raise StaleObjectError(str(error)) from error
        return self._version_of(written, name)

    async def get(self, name: str) -> StoredObject:
        with self._errors("get", name):
            found = await obstore.get_async(self._clients.repeating, name)
            data = bytes(await found.bytes_async())
        return StoredObject(data, self._version_of(found.meta, name))

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        assert 0 <= start < end, f"[{start}, {end}) is no range to read"
        with self._errors("read", name):
            data = bytes(await obstore.get_range_async(self._clients.repeating, name, start=start, end=end))
        if len(data) != end - start:
            raise StoreUnavailableError(
                f"{self._uri}: {name} has {len(data)} bytes from {start} on, {end - start} were expected"
            )
        return data

    async def delete(self, name: str) -> None:
        try:
            with self._errors("delete", name):
                await obstore.delete_async(self._clients.repeating, name)
        except ObjectMissingError:
            pass

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        with self._errors("list", prefix):
            async for page in obstore.list(self._clients.repeating, prefix or None):
                for found in page:
                    yield ListedObject(
                        found["path"], found["size"], int(found["last_modified"].timestamp() * 1000)
                    )

    async def close(self) -> None:
        """Do nothing: obstore's clients end with their last reference."""

    def _version_of(self, meta: "obstore.ObjectMeta | obstore.PutResult", name: str) -> Version:
        version = meta["version"] if self._by_generation else meta["e_tag"]
        if version is None:
            missing = "generation" if self._by_generation else "e-tag"
            raise StoreRefusedError(
                f"{self._uri}: the store gave no {missing} of {name}, without which no write of it is safe"
            )
        return version

    @contextmanager
    def _errors(self, action: str, name: str) -> Iterator[None]:
        """Raise obstore's errors as those of `object_store`."""
        try:
            yield
        except StoreError:
            raise
        except (BaseError, OSError, ValueError) as error:
            reason = _reason_of(error)[:_LONGEST_REASON]
            raise _kind_of(error)(f"{self._uri}: cannot {action} {name}: {reason}") from error


def _reason_of(error: Exception) -> str:
    """Return the store's reason as one line without secrets."""
    reason = _ERROR_BODY.sub(r"\1: \2", described(error))
    reason = " ".join(_QUERY.sub(r"\1", reason).split())
    if any(server in reason for server in _INSTANCE_METADATA):
        return f"no credentials in options or environment, and none from the machine: {reason}"
    # Of an answer its status says it all; without one the endpoint's address may be the mistake.
    return reason.partition("status code: ")[2] or reason


def _kind_of(error: Exception) -> type[StoreError]:
    if _is_about_bucket(error):
        return StoreRefusedError
    match error:
        case AlreadyExistsError():
            return ObjectExistsError
        case PreconditionError():
            return StaleObjectError
        case FileNotFoundError() | NotFoundError():
            return ObjectMissingError
        case (
            PermissionDeniedError()
            | UnauthenticatedError()
            | NotSupportedError()
            | InvalidPathError()
            | PermissionError()
        ):
            return StoreRefusedError
    message = str(error)
    if "<Code>RequestTimeout</Code>" in message:  # S3 calls a slow upload a bad request
        return StoreUnavailableError
    return StoreRefusedError if any(refusal in message for refusal in _REFUSALS) else StoreUnavailableError


def _is_about_bucket(error: Exception) -> bool:
    return any(code in str(error) for code in _MISSING_BUCKET)
