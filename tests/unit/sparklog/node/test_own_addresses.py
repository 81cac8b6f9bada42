"""Hosts that are this machine by name or address."""

import socket
import time
from typing import Any

import pytest

from sparklog.node.own_addresses import is_this_machine


def test_host_that_no_name_server_can_be_asked_for_is_another_machine() -> None:
    """IDNA refuses such a label with UnicodeError, which ended the task."""
    assert not is_this_machine("a" * 70 + ".test")
    assert not is_this_machine("a..b\u00e9")


def test_host_that_was_not_resolved_is_looked_up_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name server that failed once would else keep a process from near reads for ever; own hosts stay."""
    lookups: list[str] = []
    resolves = False
    found = socket.getaddrinfo

    def resolve(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host != "own.test":
            return found(host, port, *rest, **options)
        lookups.append(host)
        if not resolves:
            raise socket.gaierror(socket.EAI_AGAIN, "again")
        return found("127.0.0.1", port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    assert [is_this_machine("own.test"), is_this_machine("own.test")] == [False, False]
    assert len(lookups) == 1
    resolves = True
    now_s += 61
    assert [is_this_machine("own.test"), is_this_machine("own.test")] == [True, True]
    now_s += 1_000_000
    assert is_this_machine("own.test")
    assert len(lookups) == 2
