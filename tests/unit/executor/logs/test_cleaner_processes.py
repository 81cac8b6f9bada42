"""Processes that clean: they end with whoever started them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.cluster import wait_for

STARTER = """
import sys
from executor.logs.cleaner_processes import CleanerProcess, CleaningFailedError
from sparklog.storage.cleaning.request import CleaningRequest

request = CleaningRequest(
    directory=sys.argv[1], segments=[], segments_end=0, transaction_indexes=[], first_dirty_offset=0,
    end_offset=0, producers={}, now_ms=0, delete_retention_ms=0, segment_bytes=1, segment_index_bytes=1,
    index_interval_bytes=1, dedupe_buffer_bytes=0, load_factor=0.9, max_bytes_a_second=None,
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
