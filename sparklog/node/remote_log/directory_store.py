"""An object store in a directory that all brokers and the driver reach: one machine, or a shared file system.

An object is written beside its name, as `<name>.partial-<random>`, synced, and renamed while the lock of its
name is held; so it is there as a whole or not at all, and a condition holds until the write that it guards.
The locks are files of the directory `.locks`, taken by flock, which serves processes and, over NFS, machines.

A crash leaves a partial file. Lists show it, as any object that no manifest names, and so it is collected
like those. Versions are digests of the contents.
"""

import asyncio
import errno
import fcntl
import mmap
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TypeVar
from zlib import crc32

from xxhash import xxh3_128

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

T = TypeVar("T")

_LOCKS: Final = ".locks"
_LOCK_COUNT: Final = 64
"""Names share locks, so that the directory of locks does not grow with the names."""
_THREADS: Final = 16
"""They wait for the disk, which syncs many files at once about as fast as one."""
_PIECE_BYTES: Final = 1024 * 1024
_REFUSALS: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR}
)


class _Entries(NamedTuple):
    directories: list[str]
    objects: list[ListedObject]


class DirectoryStore:
    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._threads: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="remote-log-directory")

    @property
    def uri(self) -> str:
        return f"file://{self._directory}"

    async def create(self, name: str, data: bytes | memoryview | Path) -> Version:
        return await self._in_thread("create", name, lambda path: self._create(path, data))

    async def replace(self, name: str, data: bytes, version: Version) -> Version:
        return await self._in_thread("replace", name, lambda path: self._replace(path, data, version))

    async def get(self, name: str) -> StoredObject:
        return await self._in_thread("get", name, _read)

    async def get_range(self, name: str, start: int, end: int) -> bytes:
        assert 0 <= start < end, f"[{start}, {end}) is no range to read"
        data = await self._in_thread("read", name, lambda path: _read_range(path, start, end - start))
        if len(data) != end - start:
            raise StoreUnavailableError(
                f"{self.uri}: {name} has {len(data)} bytes from {start} on, {end - start} were expected"
            )
        return data

    async def delete(self, name: str) -> None:
        with suppress(ObjectMissingError):
            await self._in_thread("delete", name, self._delete)

    async def list(self, prefix: str) -> AsyncIterator[ListedObject]:
        # A page at a time, so that a long list neither holds the loop nor is in memory as a whole.
        directories = [prefix.rstrip("/")]
        while directories:
            found = await self._in_thread("list", directories.pop(), self._entries)
            directories += found.directories
            for entry in found.objects:
                yield entry

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _in_thread(self, action: str, name: str, work: Callable[[Path], T]) -> T:
        def run() -> T:
            try:
                return work(self._path_of(name))
            except StoreError:
                raise
            except FileNotFoundError as error:
                raise ObjectMissingError(f"{self.uri}: there is no {name}") from error
            except OSError as error:
                kind = StoreRefusedError if error.errno in _REFUSALS else StoreUnavailableError
                raise kind(f"{self.uri}: cannot {action} {name}: {error}") from error

        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    def _path_of(self, name: str) -> Path:
        if name and any(part in ("", ".", "..") for part in name.split("/")):
            raise StoreRefusedError(f"{self.uri}: {name!r} is not the name of an object")
        return self._directory / name

    def _create(self, path: Path, data: bytes | memoryview | Path) -> Version:
        if path.exists():
            raise self._exists(path)
        with self._partial_file(path, data) as (partial, version), self._locked(path):
            if path.exists():
                raise self._exists(path)
            _put_in_place(partial, path)
        return version

    def _replace(self, path: Path, data: bytes, version: Version) -> Version:
        with self._partial_file(path, data) as (partial, new_version), self._locked(path):
            try:
                found = xxh3_128(path.read_bytes()).hexdigest()
            except FileNotFoundError:
                raise StaleObjectError(f"{self.uri}: {self._name_of(path)} was deleted") from None
            if found != version:
                raise StaleObjectError(f"{self.uri}: {self._name_of(path)} was replaced by another writer")
            _put_in_place(partial, path)
        return new_version

    def _delete(self, path: Path) -> None:
        with self._locked(path):
            path.unlink()

    @contextmanager
    def _partial_file(self, path: Path, data: bytes | memoryview | Path) -> Iterator[tuple[Path, Version]]:
        """Yield a synced file beside `path`, and the version of its contents; it is gone afterwards."""
        partial = path.with_name(f"{path.name}.partial-{uuid.uuid4().hex[:8]}")
        _make_directory(partial.parent)
        try:
            version = _link(data, partial) if isinstance(data, Path) else None
            if version is None:
                with partial.open("xb") as target:
                    version = _write(target, data)
                    target.flush()
                    os.fsync(target.fileno())
            yield partial, version
        finally:
            partial.unlink(missing_ok=True)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        locks = self._directory / _LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        number = crc32(self._name_of(path).encode()) % _LOCK_COUNT
        with (locks / str(number)).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _entries(self, path: Path) -> "_Entries":
        """Return what is in a directory, which may be gone, or never have been."""
        directories: list[str] = []
        objects: list[ListedObject] = []
        try:
            entries = list(os.scandir(path))
        except (FileNotFoundError, NotADirectoryError):
            return _Entries(directories, objects)
        for entry in entries:
            name = self._name_of(Path(entry.path))
            if entry.is_dir():
                if name != _LOCKS:
                    directories.append(name)
                continue
            try:
                found = entry.stat()
            except FileNotFoundError:
                continue
            objects.append(ListedObject(name, found.st_size, found.st_mtime_ns // 1_000_000))
        return _Entries(directories, objects)

    def _name_of(self, path: Path) -> str:
        return path.relative_to(self._directory).as_posix()

    def _exists(self, path: Path) -> ObjectExistsError:
        return ObjectExistsError(f"{self.uri}: {self._name_of(path)} exists")


def _put_in_place(partial: Path, path: Path) -> None:
    partial.replace(path)
    _sync_directory(path.parent)


def _link(source: Path, target: Path) -> Version | None:
    """Make `target` a synced file of the same bytes as `source`, without a copy; None where that cannot be.

    Nothing may write to `source` any more. File systems have links within themselves only, and some none.
    """
    try:
        target.hardlink_to(source)
    except OSError:
        return None
    with target.open("rb") as file:
        os.fsync(file.fileno())
        if not os.fstat(file.fileno()).st_size:
            return xxh3_128().hexdigest()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            return xxh3_128(data).hexdigest()


def _write(target: BinaryIO, data: bytes | memoryview | Path) -> Version:
    digest = xxh3_128()
    if not isinstance(data, Path):
        target.write(data)
        digest.update(data)
        return digest.hexdigest()
    with data.open("rb") as source:
        while piece := source.read(_PIECE_BYTES):
            target.write(piece)
            digest.update(piece)
    return digest.hexdigest()


def _read(path: Path) -> StoredObject:
    data = path.read_bytes()
    return StoredObject(data, xxh3_128(data).hexdigest())


def _make_directory(path: Path) -> None:
    """Make a directory that outlives a power cut, as do those above it."""
    if not path.is_dir():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_range(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        return os.pread(file.fileno(), length, start)
