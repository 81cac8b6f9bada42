"""A JVM that runs Kafka's own programs one after the other: starting one takes longer than most of them do.

The programs are Kafka's, unchanged; what would end the process ends the program (`java/KafkaPrograms.java`).
One that has to be killed, or to run beside another one, needs a process of its own (`kafka_command`).
"""

import contextlib
import select
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.java_libraries import PROGRAM_TIMEOUT_S, source_command

SOURCE: Final = Path(__file__).parent / "java" / "KafkaPrograms.java"
_LENGTH: Final = struct.Struct(">i")


class KafkaJvm:
    """The JVM; a context manager. Started again if a program had to be killed with it."""

    def __init__(self) -> None:
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            LibrariesUnavailableError: Kafka can't be fetched.
        """
        command = source_command(SOURCE)
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0
        )
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it, and whatever program it runs."""
        self._process.kill()
        with self._process, contextlib.suppress(BrokenPipeError):
            self._process.communicate()
        self._said.close()

    def run(
        self,
        main_class: str,
        *arguments: str,
        check: bool = True,
        timeout_s: float = PROGRAM_TIMEOUT_S,
        reads: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of Kafka's to its end, which reads `reads`; as `run_kafka_program` otherwise.

        Raises:
            RuntimeError: the program failed and `check` is set; shows the end of what it printed.
            subprocess.TimeoutExpired: it ran for longer than `timeout_s`, and was killed.
        """
        texts = [text.encode() for text in (reads, main_class, *arguments)]
        with self._one_at_a_time:
            deadline_s = time.monotonic() + timeout_s
            try:
                self._write(_LENGTH.pack(len(texts)) + b"".join(_LENGTH.pack(len(t)) + t for t in texts))
                (status,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline_s))
                output, errors = (self._read_text(deadline_s) for _ in range(2))
            except TimeoutError:
                self.__exit__(None, None, None)
                self.__enter__()
                raise subprocess.TimeoutExpired(main_class, timeout_s) from None
        if check and status != 0:
            raise RuntimeError(f"{main_class} ended with status {status}:\n{(output + errors)[-4000:]}")
        return subprocess.CompletedProcess([main_class, *arguments], status, output, errors)

    def _write(self, request: bytes) -> None:
        assert self._process.stdin is not None
        left = memoryview(request)
        while left:
            left = left[self._process.stdin.write(left) :]

    def _read_text(self, deadline_s: float) -> str:
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size, deadline_s))
        return self._read(length, deadline_s).decode()

    def _read(self, length: int, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        found = bytearray()
        while len(found) < length:
            if not select.select([self._process.stdout], [], [], max(deadline_s - time.monotonic(), 0))[0]:
                raise TimeoutError
            some = self._process.stdout.read(length - len(found))
            if not some:
                self._said.seek(0)
                raise RuntimeError(f"the JVM has ended:\n{self._said.read()[-4000:].decode()}")
            found += some
        return bytes(found)
