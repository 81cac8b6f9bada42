"""Bytes as they lie on a connection, for requests that no client would send."""

import contextlib
import os
import socket
import struct
from pathlib import Path


def header(api_key: int, api_version: int, client_id: bytes = b"bad", *, flexible: bool = False) -> bytes:
    """Return a request header, with the empty tagged fields of v2 where `flexible`."""
    return struct.pack(">hhih", api_key, api_version, 7, len(client_id)) + client_id + b"\x00" * flexible


def frame(body: bytes, *, claimed_bytes: int | None = None) -> bytes:
    """Return the body with its length in front, or with another one."""
    return struct.pack(">i", len(body) if claimed_bytes is None else claimed_bytes) + body


def frames_in(received: bytes) -> list[bytes]:
    """Return the whole frames in what was received, without their lengths; it must hold nothing else."""
    frames = []
    position = 0
    while position < len(received):
        (size,) = struct.unpack_from(">i", received, position)
        position += 4 + size
        assert position <= len(received), "a frame is cut off"
        frames.append(received[position - size : position])
    return frames


def send_and_read(
    address: tuple[str, int], data: bytes, timeout_s: float = 5.0, *, nothing_more: bool = False
) -> bytes:
    """Send bytes on a connection of their own; return what comes back until it is closed.

    With `nothing_more` the other side is told that these are all: else it has to close by itself.

    Raises:
        TimeoutError: the other side has neither closed nor answered for `timeout_s`.
    """
    received = b""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            connection.sendall(data)
            if nothing_more:
                with contextlib.suppress(OSError):  # it may be closed already
                    connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except ConnectionError:
            pass  # closed with some of `data` unread
    return received


def read_one_answer(address: tuple[str, int], data: bytes, timeout_s: float) -> bytes:
    """Send bytes on a connection of their own; return the first frame that comes back, empty if none does.

    Raises:
        TimeoutError: the other side has neither closed nor answered for `timeout_s`.
    """
    with socket.create_connection(address, timeout=timeout_s) as connection:
        try:
            connection.sendall(data)
            with connection.makefile("rb") as received:
                size = int.from_bytes(received.read(4), "big")
                return received.read(size)
        except ConnectionError:
            return b""  # closed with some of `data` unread


def resident_bytes(process_id: int) -> int:
    """Return how much memory a process has in RAM."""
    with open(f"/proc/{process_id}/statm") as statm:  # noqa: PTH123 - a file of the kernel
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def forget_peak(process_id: int) -> int:
    """Have `peak_resident_bytes` count from now on (proc(5), clear_refs); return what it is now."""
    Path(f"/proc/{process_id}/clear_refs").write_text("5")
    return peak_resident_bytes(process_id)


def peak_resident_bytes(process_id: int) -> int:
    """Return how much memory a process had in RAM at most."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
