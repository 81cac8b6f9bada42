"""The command sparklog-scale, as far as it needs no cluster."""

import socket

import pytest

from sparklog.jobs.scale.__main__ import main


def test_scale_at_a_dead_address_ends_with_an_error_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip in the address must not look like a cluster that takes long to change."""
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{refusing.getsockname()[1]}"
        assert main([address, "--racks", "5"]) == 1
    assert f"no cluster answers at {address}" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "three"])
def test_scale_to_no_number_of_racks_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before any cluster is asked."""
    with pytest.raises(SystemExit):
        main(["127.0.0.1:1", "--racks", number])
    assert "--racks" in capsys.readouterr().err
