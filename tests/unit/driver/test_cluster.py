"""A cluster whose brokers do not come up: what its start says, and when."""

import itertools
import logging
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.driver.application import start
from sparklog.driver.cluster import FAILURES_BEFORE_START_ALLOWED
from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.driver.spark import rack
from sparklog.hosting import BrokerEnd, BrokerRefusedError, StartError
from sparklog.node.config import BrokerConfig
from sparklog.node.security.application_secret import ApplicationSecret
from tests.application_secret import SECRET
from tests.cluster import wait_for
from tests.unit.driver.applications import REFUSAL, Application, refused
from tests.unit.driver.controller.conversation import CLUSTER_ID
from tests.unit.driver.controller.voters import Disk, Voters


def test_start_whose_brokers_are_all_refused_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The reason and its remedy were taken for a user's stop, when all were refused within one look."""
    with pytest.raises(BrokerRefusedError, match=f"broker 0 of rack-0: {REFUSAL}"):
        start(Application(refused).context, racks=1)
    assert "application ended" not in caplog.text


def fails(number: int) -> list[BrokerEnd]:
    """A job whose broker ends each time."""
    raise RuntimeError(f"the disk is full for the {number}. time")


def test_start_whose_jobs_fail_again_and_again_says_why_the_last_one_did() -> None:
    """No other attempt will do better."""
    with pytest.raises(StartError, match=r"jobs fail: the disk is full for the 5\. time"):
        start(Application(fails).context, racks=1)


@pytest.mark.parametrize(
    "cause",
    [
        "ModuleNotFoundError: No module named 'sparklog'",
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
        "different version: 3.12 than that in driver: 3.11",
        "org.apache.spark.SparkException: EOFException occurred while reading the port number from "
        "pyspark.daemon's stdout.",
        'java.io.IOException: Cannot run program "python3.99": error=2, No such file or directory',
    ],
)
def test_start_whose_workers_are_of_another_python_names_both_and_the_remedy(cause: str) -> None:
    """The fifth attempt will fail as the first did: the first says what to set."""
    jobs = []

    def job(number: int) -> list[BrokerEnd]:
        jobs.append(number)
        raise RuntimeError(f"org.apache.spark.SparkException: Job aborted\n{cause}\n\tat java")

    application = Application(job)
    application.context.pythonExec = "/elsewhere/python3"
    with pytest.raises(StartError) as raised:
        start(application.context, racks=1)
    told = str(raised.value)
    assert f"cannot run brokers: {cause}" in told
    assert "starts them as /elsewhere/python3" in told and sys.executable in told
    assert "Set PYSPARK_PYTHON" in told
    assert len(jobs) < FAILURES_BEFORE_START_ALLOWED


def test_start_that_takes_too_long_says_how_long_it_waited_and_for_which_brokers() -> None:
    """It waited for 120 s, spoke of 0.2 s, and named none."""
    cancelled = threading.Event()

    def job(_: int) -> list[BrokerEnd]:
        """A task that runs, and whose broker reaches nothing."""
        assert cancelled.wait(60)
        return []

    application = Application(job)
    application.context.cancelJobGroup.side_effect = lambda _: cancelled.set()
    with pytest.raises(StartError) as raised:
        start(application.context, racks=2, config={"sparklog.start.timeout.ms": 300})
    told = str(raised.value)
    assert "did not come up within 0.3 s (sparklog.start.timeout.ms): 0 of 2 brokers are unfenced" in told
    assert "broker 0 of rack-0 is missing: its job has been submitted" in told
    assert "broker 1 of rack-1 is missing" in told


def earlier_cluster(disks: Sequence[Disk], directory: Path) -> None:
    """Have voters on the disks of a cluster that has stopped."""
    server = ControllerServer(
        BrokerConfig.from_mapping({}, racks=3),
        directory,
        secret=SECRET,
        expected_brokers=[ExpectedBroker(number, f"rack-{number}") for number in range(3)],
        new_cluster_id=CLUSTER_ID,
    )
    server.start()
    try:
        with Voters(int(server.bootstrap_servers.rpartition(":")[2]), dict(enumerate(disks))):
            wait_for(lambda: server.image.offset is not None, "a majority of the voters")
    finally:
        server.stop()


def test_start_that_waits_for_voters_outlives_jobs_that_fail_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may wait for days for a host with a directory, and executors come and go meanwhile."""
    disks = [Disk(tmp_path / f"voter-{number}") for number in range(3)]
    earlier_cluster(disks, tmp_path / "controller")
    monkeypatch.setattr(ApplicationSecret, "new", lambda: SECRET)
    monkeypatch.setattr(rack, "STEADY_S", 0.0)  # each time it had served
    caplog.set_level(logging.INFO)
    caplog.clear()
    numbers = itertools.count(1)

    def job(_: int) -> list[BrokerEnd]:
        # With the first voter it is known that another one is missing.
        wait_for(lambda: "Copied the metadata log of" in caplog.text, "the voters' names")
        number = next(numbers)
        return refused(number) if number > 12 else fails(number)

    application = Application(job)
    with ThreadPoolExecutor(1) as starter:
        starting = starter.submit(start, application.context, racks=3)
        wait_for(lambda: application.assignments, "a job")
        with (
            Voters(application.assignments[0].controller_port, {0: disks[0]}),
            pytest.raises(BrokerRefusedError),
        ):
            starting.result()
    assert next(numbers) > 12
