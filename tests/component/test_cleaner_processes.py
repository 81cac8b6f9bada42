"""Processes that clean: they end with whoever started them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.executor.logs import cleaner_processes
from sparklog.executor.logs.cleaner_processes import CleanerProcess, CleaningFailedError
from sparklog.node.storage.cleaning.request import CleaningRequest
from tests.cluster import wait_for

REQUEST = CleaningRequest(
    directory="/nowhere",
    segments=[],
    segments_end=0,
    transaction_indexes=[],
    first_dirty_offset=0,
    end_offset=0,
    producers={},
    now_ms=0,
    delete_retention_ms=0,
    segment_bytes=1,
    segment_index_bytes=1,
    index_interval_bytes=1,
    dedupe_buffer_bytes=0,
    load_factor=0.9,
    max_bytes_a_second=None,
    window_bytes=1,
    max_decompressed_bytes=1,
)

STARTER = """
import sys
from sparklog.executor.logs.cleaner_processes import CleanerProcess, CleaningFailedError
from sparklog.node.storage.cleaning.request import CleaningRequest

request = CleaningRequest(
    directory=sys.argv[1], segments=[], segments_end=0, transaction_indexes=[], first_dirty_offset=0,
    end_offset=0, producers={}, now_ms=0, delete_retention_ms=0, segment_bytes=1, segment_index_bytes=1,
    index_interval_bytes=1, dedupe_buffer_bytes=0, load_factor=0.9, max_bytes_a_second=None,
    window_bytes=1, max_decompressed_bytes=1,
)
cleaner = CleanerProcess()
try:
    cleaner.clean(request)
except CleaningFailedError as error:
    print(cleaner.process_id, error, flush=True)
sys.stdin.read()
"""


def test_cleaner_ends_with_a_broker_that_is_killed_and_says_why_it_cannot_clean(tmp_path: Path) -> None:
    """Nobody else would ever end it, and it would go on writing into a directory that another broker has."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    ) as broker:
        assert broker.stdout is not None
        process_id, _, reason = broker.stdout.readline().partition(" ")
        assert "log.cleaner.dedupe.buffer.size" in reason
        cleaner = Path("/proc") / process_id
        assert cleaner.exists()
        broker.send_signal(signal.SIGKILL)
        wait_for(lambda: not cleaner.exists() or " Z " in (cleaner / "stat").read_text(), "its end")


@pytest.fixture
def cleaner() -> Iterator[CleanerProcess]:
    process = CleanerProcess()
    yield process
    process.end()


def test_log_that_kills_its_cleaner_leaves_one_for_the_next_log(cleaner: CleanerProcess) -> None:
    """The dirtiest log comes first, always: if it takes all the memory, no other log would be cleaned."""
    with pytest.raises(CleaningFailedError, match="dedupe"):
        cleaner.clean(REQUEST)
    killed = cleaner.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(CleaningFailedError, match="has ended"):
        cleaner.clean(REQUEST)
    with pytest.raises(CleaningFailedError, match="dedupe"):
        cleaner.clean(REQUEST)
    assert cleaner.process_id != killed


@pytest.mark.parametrize("answer", ['{"cleaned_up_to": 1}', "[]", "what?", '{"error": "x"}'])
def test_answer_that_says_nothing_is_a_failed_cleaning(
    cleaner: CleanerProcess, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a log is set aside like any other that cannot be cleaned, and in nobody's way."""
    (tmp_path / "no_cleaner.py").write_text(f"input(); print({answer!r}, flush=True); input()")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cleaner_processes, "_MODULE", "no_cleaner")
    with pytest.raises(CleaningFailedError, match="answered"):
        cleaner.clean(REQUEST)


def test_cleaner_that_cannot_be_started_says_nothing_of_the_disk(
    cleaner: CleanerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ "Permission denied" of a log's file takes its directory offline; of the interpreter it must not."""
    (tmp_path / "python").touch(mode=0o600)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(CleaningFailedError, match="Permission denied"):
        cleaner.clean(REQUEST)


def test_cleaner_runs_nothing_that_lies_where_the_broker_works(
    cleaner: CleanerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor works among its users' files, of whatever names."""
    (tmp_path / "json.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CleaningFailedError, match="dedupe"):
        cleaner.clean(REQUEST)
