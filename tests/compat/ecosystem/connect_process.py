"""A process of Kafka Connect's: a worker, or MirrorMaker 2; it may be killed and started again."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.java_libraries import connect_command

REST_TIMEOUT_S: Final = 30.0
LOG_TAIL_BYTES: Final = 6_000
STARTED_TOO_SOON: Final = frozenset({404, 409, 500, 503})
"""Statuses of a worker that still starts, or rebalances; the request may be sent again."""


class ConnectProcess:
    """The process; a context manager. Shows the end of its log with an error that leaves the block."""

    def __init__(self, main_class: str, properties: Mapping[str, str], directory: Path, name: str) -> None:
        """Make the process's files in `directory`.

        Raises:
            LibrariesUnavailableError: Connect can't be fetched.
        """
        file = directory / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._command = connect_command(main_class, str(file))
        self._log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace"))

    def start(self) -> None:
        """Start the process; the log goes on."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL the process, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Worker(ConnectProcess):
    """A distributed worker and its REST interface."""

    def __init__(self, properties: Mapping[str, str], port: int, directory: Path) -> None:
        listener = {"listeners": f"http://127.0.0.1:{port}"}
        super().__init__(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            {**properties, **listener},
            directory,
            f"worker-{port}",
        )
        self.worker_id = f"127.0.0.1:{port}"

    def serves(self) -> bool:
        """Whether it is a member of its group, and answers."""
        return self.ask("GET", "connectors") is not None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; return the answer's content, None for a worker that does not serve it yet.

        Raises:
            RuntimeError: the worker refused the request; shows what it said.
        """
        request = urllib.request.Request(
            f"http://{self.worker_id}/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode()
            if error.code in STARTED_TOO_SOON:
                return None
            raise RuntimeError(f"{method} {path} was refused with {error.code}: {said}") from None
        except (urllib.error.URLError, ConnectionError):
            return None
