"""A broker comes back to the ports that it had; the file that says so may be missing, or be anything."""

from pathlib import Path

import pytest

from sparklog.executor.api.listeners.client_listeners import PORTS_FILE, read_ports_file, write_ports_file


def test_former_ports_are_those_that_were_written_last(tmp_path: Path) -> None:
    """Whoever has the addresses of the brokers needs them at the next start."""
    assert read_ports_file(tmp_path) == {}
    write_ports_file(tmp_path, {"PLAINTEXT": 40_001, "INTERNAL": 40_002})
    write_ports_file(tmp_path, {"PLAINTEXT": 40_003})
    assert read_ports_file(tmp_path) == {"PLAINTEXT": 40_003}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\xff",
        b"[]",
        b'{"ports":null}',
        b'{"ports":["PLAINTEXT"]}',
        b'{"ports":{"PLAINTEXT":"40001"}}',
        b'{"ports":{"PLAINTEXT":0}}',
        b'{"ports":{"PLAINTEXT":65536}}',
    ],
)
def test_former_ports_that_cannot_be_read_are_none(tmp_path: Path, content: bytes) -> None:
    """A broker starts at any port rather than not at all."""
    (tmp_path / PORTS_FILE).write_bytes(content)
    assert read_ports_file(tmp_path) == {}
