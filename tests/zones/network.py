"""Zones as network namespaces with addresses of their own, a delay between them, and cuts in one direction.

    with Zones(4, delay_ms=10) as zones, zones[0].entered():
        ...                                   # sockets, threads and processes that begin here are in zone 0
        zones.cut([(1, 0)])                   # from now on nothing comes from zone 1 to zone 0
        zones.heal()

Each zone has one interface, a TUN device. Whatever leaves it is an IP packet that the switch (`switch.py`, a
process of its own) reads, keeps for the delay, and writes to the zone of its destination; the kernel's own
delay, sch_netem, is not needed. A cut loses packets without a word, those on their way included, as a
network does: no connection is refused or reset. Inside a zone traffic goes over the loopback interface, and
is neither delayed nor cut.

Namespaces have no names: descriptors of this process and the processes inside hold them, so nothing is left
behind, however the tests end. Their addresses exist nowhere else. Linux alone, with CAP_SYS_ADMIN.
"""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Self

CLONE_NEWNET: Final = 0x40000000
TUNSETIFF: Final = 0x400454CA
SIOCSIFFLAGS: Final = 0x8914
SIOCSIFADDR: Final = 0x8916
SIOCSIFNETMASK: Final = 0x891C
SIOCSIFMTU: Final = 0x8922
SIOCSIFTXQLEN: Final = 0x8943
IFF_UP: Final = 0x1
IFF_TUN_WITHOUT_HEADER: Final = 0x1 | 0x1000

INTERFACE: Final = "zone"
MTU_BYTES: Final = 9_000
"""Of jumbo frames, as clouds have them inside a region."""
QUEUE_PACKETS: Final = 10_000
"""More than the windows of a test's connections: nothing is lost but by a cut."""
END_TIMEOUT_S: Final = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


class ZonesUnavailableError(Exception):
    """This process may not make network namespaces or TUN devices, or the kernel has none."""


class Zone:
    """One network namespace, held by a descriptor."""

    def __init__(self, number: int) -> None:
        """Make the namespace with its interface.

        Raises:
            ZonesUnavailableError: the kernel refuses.
        """
        self.address = f"10.77.{number}.1"
        self._namespace = self._tun = -1
        try:
            with _returning():
                _check(_libc.unshare(CLONE_NEWNET), "unshare")
                self._namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                self._tun = _new_interface(self.address)
        except OSError as error:
            self.close()
            raise ZonesUnavailableError(f"no network namespace: {error}") from error

    @property
    def path(self) -> str:
        """The file by which other processes of this user find the namespace (`enter`)."""
        return f"/proc/{os.getpid()}/fd/{self._namespace}"

    @property
    def tun(self) -> int:
        """The descriptor with the packets that leave the zone, and for those that come."""
        return self._tun

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Put the calling thread into the zone, and whatever threads and processes begin in it meanwhile."""
        with _returning():
            _check(_libc.setns(self._namespace, CLONE_NEWNET), "setns")
            yield

    def received_bytes(self) -> int:
        """Return the bytes that have come from other zones, as the interface counts them."""
        with self.entered():
            lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
        (counted,) = (line.partition(":")[2] for line in lines if line.partition(":")[0].strip() == INTERFACE)
        return int(counted.split()[0])

    def close(self) -> None:
        """Let the namespace go; it ends with the last process inside."""
        for descriptor in (self._namespace, self._tun):
            if descriptor >= 0:
                os.close(descriptor)
        self._namespace = self._tun = -1


class Zones:
    """Zones that reach each other through the switch, `delay_ms` later in each direction."""

    def __init__(self, count: int, *, delay_ms: float) -> None:
        self.delay_ms = delay_ms
        self._count = count
        self._closing = contextlib.ExitStack()
        self._zones: list[Zone] = []

    def __enter__(self) -> Self:
        """Make the zones.

        Raises:
            ZonesUnavailableError: namespaces or TUN devices cannot be made here.
        """
        with contextlib.ExitStack() as closing:
            for number in range(self._count):
                self._zones.append(zone := Zone(number))
                closing.callback(zone.close)
            self._switch = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("switch.py")), str(self.delay_ms)]
                + [f"{zone.address}={zone.tun}" for zone in self._zones],
                pass_fds=[zone.tun for zone in self._zones],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            closing.callback(self._end_switch)
            self._closing = closing.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()

    def __getitem__(self, number: int) -> Zone:
        return self._zones[number]

    def cut(self, directions: Iterable[tuple[int, int]]) -> None:
        """Lose all that goes from the first to the second zone of each pair, and nothing else."""
        assert self._switch.stdin is not None and self._switch.stdout is not None
        cuts = [(self[source].address, self[target].address) for source, target in directions]
        self._switch.stdin.write(json.dumps(cuts) + "\n")
        self._switch.stdin.flush()
        answer = self._switch.stdout.readline()
        assert answer == "cut\n", f"the switch has ended: {answer!r}"

    def heal(self) -> None:
        """Let everything through again."""
        self.cut([])

    def into(self, number: int) -> list[tuple[int, int]]:
        """Return the directions from all other zones into this one."""
        return [(other, number) for other in range(self._count) if other != number]

    def out_of(self, number: int) -> list[tuple[int, int]]:
        """Return the directions from this zone to all others."""
        return [(number, other) for other in range(self._count) if other != number]

    def between(self, *numbers: int) -> list[tuple[int, int]]:
        """Return both directions of every two of these zones."""
        return list(itertools.permutations(numbers, 2))

    def _end_switch(self) -> None:
        assert self._switch.stdin is not None and self._switch.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._switch.stdin.close()
        try:
            self._switch.wait(END_TIMEOUT_S)
        finally:
            self._switch.kill()
            self._switch.wait()
            self._switch.stdout.close()


def enter(namespace: str) -> None:
    """Put the calling thread into the namespace of a file (`Zone.path`), and all that begins in it later."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, CLONE_NEWNET), "setns")
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """Put the calling thread back into its present namespace in the end."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _check(_libc.setns(before, CLONE_NEWNET), "setns")
        finally:
            os.close(before)


def _new_interface(address: str) -> int:
    """Bring up loopback and a TUN device in the calling thread's namespace; return the descriptor."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tun, TUNSETIFF, _request(INTERFACE, struct.pack("H", IFF_TUN_WITHOUT_HEADER)))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            for call, value in (
                (SIOCSIFADDR, _internet_address(address)),
                (SIOCSIFNETMASK, _internet_address("255.255.0.0")),
                (SIOCSIFMTU, struct.pack("i", MTU_BYTES)),
                (SIOCSIFTXQLEN, struct.pack("i", QUEUE_PACKETS)),
                (SIOCSIFFLAGS, struct.pack("H", IFF_UP)),
            ):
                fcntl.ioctl(control, call, _request(INTERFACE, value))
            fcntl.ioctl(control, SIOCSIFFLAGS, _request("lo", struct.pack("H", IFF_UP)))
    except BaseException:
        os.close(tun)
        raise
    return tun


def _request(interface: str, value: bytes) -> bytes:
    """Return a struct ifreq."""
    return struct.pack("16s24s", interface.encode(), value)


def _internet_address(address: str) -> bytes:
    """Return a struct sockaddr_in."""
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))


def _check(status: int, call: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
