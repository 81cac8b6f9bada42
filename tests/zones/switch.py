"""The switch between zones, in a process of its own: every packet waits for the delay, and some are lost.

Arguments: the delay in milliseconds, then ADDRESS=DESCRIPTOR for each zone's TUN device (`network.py`). A
line on standard input is a JSON list of the directions that lose everything from now on, as pairs of
addresses; the answer is a line `cut`, when no packet of theirs is on its way any more. The process ends with
standard input.
"""

import json
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

PACKETS_AT_A_TIME: Final = 64
LONGEST_PACKET_BYTES: Final = 65_536
SOURCE: Final = slice(12, 16)
DESTINATION: Final = slice(16, 20)
_IPV4: Final = 4


class Switch:
    """The packets on their way."""

    def __init__(self, delay_s: float, tuns: Mapping[bytes, int]) -> None:
        """`tuns` has the descriptor of each address."""
        self._delay_s = delay_s
        self._tuns = tuns
        self._cuts: frozenset[tuple[bytes, bytes]] = frozenset()
        self._waiting: deque[tuple[float, bytes]] = deque()

    def run(self) -> None:
        """Pass packets on until standard input ends."""
        control = sys.stdin.fileno()
        commands = b""
        watched = [control, *self._tuns.values()]
        while True:
            readable, _, _ = select.select(watched, (), (), self._next_s())
            self._deliver()
            for descriptor in readable:
                if descriptor != control:
                    self._take(descriptor)
                    continue
                if not (more := os.read(control, LONGEST_PACKET_BYTES)):
                    return
                *lines, commands = (commands + more).split(b"\n")
                for line in lines:
                    self._cut(line)

    def _next_s(self) -> float | None:
        """Return the time until the next packet is due; None without one."""
        return max(self._waiting[0][0] - time.monotonic(), 0.0) if self._waiting else None

    def _deliver(self) -> None:
        now_s = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now_s:
            _, packet = self._waiting.popleft()
            os.write(self._tuns[packet[DESTINATION]], packet)

    def _take(self, tun: int) -> None:
        for _ in range(PACKETS_AT_A_TIME):
            try:
                packet = os.read(tun, LONGEST_PACKET_BYTES)
            except BlockingIOError:
                return
            if packet[0] >> 4 == _IPV4 and packet[DESTINATION] in self._tuns and not self._is_lost(packet):
                self._waiting.append((time.monotonic() + self._delay_s, packet))

    def _cut(self, line: bytes) -> None:
        self._cuts = frozenset(
            (socket.inet_aton(source), socket.inet_aton(target)) for source, target in json.loads(line)
        )
        self._waiting = deque(each for each in self._waiting if not self._is_lost(each[1]))
        print("cut", flush=True)

    def _is_lost(self, packet: bytes) -> bool:
        return (packet[SOURCE], packet[DESTINATION]) in self._cuts


if __name__ == "__main__":
    delay_ms, *zones = sys.argv[1:]
    Switch(
        float(delay_ms) / 1_000,
        {
            socket.inet_aton(address): int(descriptor)
            for address, _, descriptor in (zone.partition("=") for zone in zones)
        },
    ).run()
