"""A disk for each broker that can be filled, can fail, and can lose its power; needs root and loop devices.

Each is an ext4 file system in a file. Full is full: whoever writes gets ENOSPC. To fail, the file system is
told of an error (ext4's `trigger_fs_error`) and does what `errors=remount-ro` says: from then on every write,
into open files too, gets EROFS, and only mounting it anew, after a check, ends that. Without power it keeps
what it has written back by then, and the rest is gone (EXT4_IOC_SHUTDOWN without a flush of the journal).

A broker's directory is a link into its disk. While the disk is not mounted the link leads nowhere, so that no
broker takes an empty mount point for a new disk.
"""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sparklog.node.storage.directory.running_marker import RUNNING_MARKER
from tests.chaos.reaper import processes_of

SIZE_BYTES: Final = 2 * 2**30
"""Of which only what is written takes space."""
RELEASE_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.02
_DATA: Final = "data"
_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_EXT4_GOING_FLAGS_NOLOGFLUSH: Final = 2


class Disk:
    """One broker's disk."""

    def __init__(self, run: str, directory: Path, broker_directory: Path) -> None:
        """Make and mount the disk below `directory`; `broker_directory` becomes a link into it."""
        self._run = run
        self._image = directory.with_suffix(".ext4")
        self._mount_point = directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(SIZE_BYTES)
        _command("mkfs.ext4", "-q", "-m", "0", "-e", "remount-ro", str(self._image))
        _mount(self._image, directory)
        (directory / _DATA).mkdir()
        broker_directory.parent.mkdir(parents=True, exist_ok=True)
        broker_directory.symlink_to(directory / _DATA, target_is_directory=True)

    @property
    def _ballast(self) -> Path:
        return self._mount_point / "ballast"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._ballast.open("ab") as ballast:
            step_bytes = SIZE_BYTES
            while step_bytes >= 512:
                try:
                    os.posix_fallocate(ballast.fileno(), os.fstat(ballast.fileno()).st_size, step_bytes)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step_bytes //= 2

    def empty(self) -> None:
        """Give the space back."""
        self._ballast.unlink()

    def fail(self) -> None:
        """Have the file system meet an error, and so become read-only."""
        device = Path(_command("findmnt", "--noheadings", "--output", "SOURCE", str(self._mount_point)))
        Path("/sys/fs/ext4", device.name, "trigger_fs_error").write_text("1")

    def lose_power(self) -> None:
        """Lose everything that has not been written back; nothing can be read or written from now on."""
        descriptor = os.open(self._mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _EXT4_GOING_FLAGS_NOLOGFLUSH))
        finally:
            os.close(descriptor)

    def get_power(self) -> None:
        """Check and mount it, in another boot of its machine than before."""
        self._release()
        # Where no broker looks: the boot of this machine is the same, and what says so must not be found.
        _mount(self._image, elsewhere := self._mount_point.with_suffix(".booting"))
        (elsewhere / _DATA / RUNNING_MARKER).unlink(missing_ok=True)
        _command("umount", str(elsewhere))
        elsewhere.rmdir()
        _mount(self._image, self._mount_point)

    def repair(self) -> None:
        """Check it and mount it anew, as after a restart of its machine; who has it open is killed."""
        self._release()
        _mount(self._image, self._mount_point)

    def _release(self) -> None:
        """Unmount it, whoever has it open, and check it."""
        deadline_s = time.monotonic() + RELEASE_TIMEOUT_S
        while True:
            for process in self._holders():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            try:
                _command("umount", str(self._mount_point))
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(POLL_S)
            else:
                break
        subprocess.run(["e2fsck", "-p", "-f", str(self._image)], check=False, stdout=subprocess.DEVNULL)

    def remove(self) -> None:
        """Unmount it and forget what was on it; nobody may have it open."""
        _command("umount", str(self._mount_point))
        self._image.unlink()

    def _holders(self) -> Sequence[int]:
        return [process for process in processes_of(self._run) if self._is_held_by(process)]

    def _is_held_by(self, process: int) -> bool:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                if self._mount_point in descriptor.readlink().parents:
                    return True
        return False


def why_no_disks(directory: Path) -> str | None:
    """Return what keeps a run from having such disks here; None if nothing does."""
    try:
        disk = Disk("trial", directory / "trial", directory / "trial-link")
        disk.remove()
    except FileNotFoundError as error:
        return f"there is no {error.filename}"
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd[:2])}: {error.stderr.strip()}"
    finally:
        for left in (directory / "trial-link", directory / "trial.ext4"):
            left.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (directory / "trial").rmdir()
    if os.geteuid() != 0:
        return "only root may tell a file system of an error"
    return None


def _mount(image: Path, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    _command("mount", "-o", "loop,errors=remount-ro", str(image), str(directory))


def _command(*arguments: str) -> str:
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout.strip()
