"""The barrier task that is a broker, as far as it needs no Spark."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext

from sparklog.executor.broker import Broker
from sparklog.executor.process.broker_task import (
    address_towards,
    end_of_parent,
    host_name,
    remove_temporary,
    run,
    run_when_unlocked,
)
from sparklog.hosting import BrokerAssignment, BrokerEnd
from sparklog.node.config import BrokerConfig
from sparklog.node.storage import DirectoryLockedError, LogDirectory
from tests.application_secret import SECRET


@pytest.mark.parametrize(
    ("executor_address", "expected"),
    [
        ("10.1.2.3:40123", "10.1.2.3"),
        ("worker-7.example:40123", "worker-7.example"),
        ("[2001:db8::7]:40123", "2001:db8::7"),
        ("127.0.0.1:40123", "driver.example"),
        ("[::1]:40123", "driver.example"),
        ("localhost:40123", "driver.example"),
    ],
)
def test_host_is_known_as_spark_knows_it_and_as_the_controllers_where_they_share_it(
    executor_address: str, expected: str
) -> None:
    """An executor beside the driver comes over loopback; told to other hosts, that would lead them astray."""
    assert host_name(executor_address, "driver.example") == expected


def test_task_waits_until_the_one_before_it_lets_its_directory_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark lets a task of a job that failed live for seconds; two would corrupt what they write."""

    async def scenario() -> None:
        caplog.set_level("INFO")
        before = LogDirectory.open(tmp_path)
        broker = Broker(
            node_id=0,
            rack="r",
            controller=("127.0.0.1", 1),
            secret=SECRET,
            config=BrokerConfig.from_mapping({}, racks=1),
            directories=[tmp_path],
            host_name="127.0.0.1",
        )
        task = asyncio.create_task(run_when_unlocked(broker))
        async with asyncio.timeout(10):
            while "Waiting for the previous task" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert not (tmp_path / "__cluster_metadata-0").exists()
            before.close()
            while not (tmp_path / "__cluster_metadata-0").exists():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            with pytest.raises(DirectoryLockedError):
                LogDirectory.open(tmp_path)
            broker.life.stop("enough")
            await task

    asyncio.run(scenario())


def assignment_in(directory: Path) -> BrokerAssignment:
    """Return the assignment of a broker whose temporary directory lies in this one."""
    return BrokerAssignment(
        node_id=1,
        rack="rack-0",
        controller_host="127.0.0.1",
        controller_port=1,
        secret=SECRET,
        configuration={},
        directories=(str(directory / "broker-1"),),
        temporary=True,
        log_level=logging.INFO,
    )


def test_task_that_spark_has_started_again_ends_before_it_is_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver submits another job for a lost broker; both would register, and fence each other."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext()._attemptNumber = 1  # the only one of a worker
    directory = tmp_path / "sparklog-cluster"
    assert run(assignment_in(directory)) == BrokerEnd(1, refusal=None, is_retry=True)
    assert not directory.exists()


def test_address_of_an_ordinary_task_is_the_one_from_which_it_reaches_the_controller() -> None:
    """A host has many; other hosts reach it where the driver does."""
    with socket.create_server(("127.0.0.1", 0)) as controller:
        port = controller.getsockname()[1]
        assert address_towards("127.0.0.1", port) == "127.0.0.1:0"
        assert host_name(address_towards("localhost", port), "driver.example") == "driver.example"


def test_address_of_an_ordinary_task_is_of_the_family_in_which_the_controller_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name may have an IPv6 address first; a broker that registered one was reached by no other host."""
    resolve = socket.getaddrinfo

    def ipv6_first(_: str, port: int, *rest: Any, **named: Any) -> list[Any]:
        return resolve("::1", port, *rest, **named) + resolve("127.0.0.1", port, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", ipv6_first)
    with socket.create_server(("127.0.0.1", 0)) as controller:
        assert address_towards("driver.example", controller.getsockname()[1]) == "127.0.0.1:0"


def test_broker_whose_temporary_directory_is_another_user_s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the executor's host somebody else may have taken the name, and would own what lies under it."""
    theirs = tmp_path / "sparklog-cluster"
    theirs.mkdir()
    owner = theirs.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    end = run(assignment_in(theirs))
    assert end.refusal is not None
    assert f"{theirs} belongs to the user with the id {owner}" in end.refusal
    assert list(theirs.iterdir()) == []


def test_last_broker_of_a_host_leaves_nothing_of_a_temporary_cluster(tmp_path: Path) -> None:
    """The driver removes what lies on its own host; on the others each start left a directory."""
    cluster = tmp_path / "sparklog-cluster"
    directories = [cluster / f"broker-{number}" for number in range(2)]
    for directory in directories:
        (directory / "t-0").mkdir(parents=True)
    remove_temporary([str(directories[0])])
    assert list(cluster.iterdir()) == [directories[1]]
    remove_temporary([str(directories[1])])
    assert list(tmp_path.iterdir()) == []
    remove_temporary([str(directories[1])])  # as when the driver of this host was first


def test_end_of_the_parent_is_noticed() -> None:
    """A killed daemon of Spark sends its workers no signal."""

    async def scenario(other: int) -> None:
        # It is not this one's parent: as if that had ended before.
        await asyncio.wait_for(end_of_parent(other), 10)
        waiting = asyncio.ensure_future(end_of_parent(os.getppid()))
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        try:
            asyncio.run(scenario(other.pid))
        finally:
            other.kill()


def test_child_of_a_process_that_is_killed_notices_it() -> None:
    """Without a poll: the kernel says it."""
    child = (
        "import asyncio, os; from sparklog.executor.process.broker_task import end_of_parent; "
        "parent = os.getppid(); print('waits', flush=True); "
        "asyncio.run(end_of_parent(parent)); print('ended', flush=True)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        process.kill()
        assert process.stdout.readline() == "ended\n"
