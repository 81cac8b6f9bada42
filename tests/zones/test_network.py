"""Zones reach each other after the delay, and not across a cut."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.zones.network import Zone, Zones

TIMEOUT_S = 10.0
LOST_S = 0.3
"""Many times the delay: a datagram that has not come by then was lost."""


@pytest.fixture
def ends(zones: Zones) -> Iterator[list[socket.socket]]:
    """A datagram socket in each zone."""
    with contextlib.ExitStack() as closing:
        yield [datagram_socket(zones[number], closing) for number in range(4)]


def datagram_socket(zone: Zone, closing: contextlib.ExitStack) -> socket.socket:
    with zone.entered():
        made = closing.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    made.bind((zone.address, 0))
    made.settimeout(TIMEOUT_S)
    return made


def arrives(source: socket.socket, target: socket.socket, timeout_s: float = TIMEOUT_S) -> bool:
    source.sendto(b"x", target.getsockname())
    target.settimeout(timeout_s)
    with contextlib.suppress(TimeoutError):
        return target.recv(1) == b"x"
    return False


def test_datagram_between_zones_takes_the_delay(zones: Zones, ends: list[socket.socket]) -> None:
    """Not sooner; later it may be, on a busy machine."""
    assert arrives(ends[0], ends[1])
    begun_s = time.monotonic()
    assert arrives(ends[1], ends[2])
    assert time.monotonic() - begun_s >= zones.delay_ms / 1_000


def test_cut_in_one_direction_leaves_the_other_and_other_zones(
    zones: Zones, ends: list[socket.socket]
) -> None:
    """An asymmetric cut is one direction and nothing else."""
    zones.cut([(1, 2)])
    assert not arrives(ends[1], ends[2], LOST_S)
    assert arrives(ends[2], ends[1])
    assert arrives(ends[1], ends[3])
    assert arrives(ends[0], ends[2])
    zones.heal()
    assert arrives(ends[1], ends[2])


def test_datagram_on_its_way_is_lost_by_a_cut_that_heals_at_once(zones: Zones) -> None:
    """A cut loses what it meets, however short it is."""
    with Zones(2, delay_ms=300) as slow, contextlib.ExitStack() as closing:
        source, target = (datagram_socket(slow[number], closing) for number in range(2))
        source.sendto(b"before", target.getsockname())
        slow.cut([(0, 1)])
        slow.heal()
        source.sendto(b"after", target.getsockname())
        assert target.recv(10) == b"after"


def test_interface_counts_what_comes_from_other_zones(zones: Zones, ends: list[socket.socket]) -> None:
    """The figures of reads from the nearest replica are such counts."""
    before = zones[1].received_bytes()
    ends[1].sendto(b"x" * 5_000, ends[1].getsockname())
    assert len(ends[1].recv(10_000)) == 5_000
    assert zones[1].received_bytes() == before
    ends[2].sendto(b"x" * 5_000, ends[1].getsockname())
    assert len(ends[1].recv(10_000)) == 5_000
    assert zones[1].received_bytes() - before == 5_000 + 28


def test_closed_zones_leave_neither_interfaces_nor_a_thread_inside(zones: Zones) -> None:
    """Whatever runs after these tests in the same process is where it was."""
    here = Path("/proc/thread-self/ns/net")
    namespace, interfaces = here.readlink(), socket.if_nameindex()
    with pytest.raises(ZeroDivisionError), Zones(2, delay_ms=1) as made, made[1].entered():
        assert here.readlink() != namespace
        raise ZeroDivisionError
    assert here.readlink() == namespace
    assert socket.if_nameindex() == interfaces
