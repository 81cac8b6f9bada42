"""The controller's process as the driver holds it: what becomes of it when either of the two is killed."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from kio.schema.create_topics.v7.request import CreateTopicsRequest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData

from sparklog.driver.process.controller_process import ControllerProcess
from sparklog.hosting import StartError
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC
from tests.application_secret import SECRET
from tests.cluster import wait_for
from tests.unit.driver.controller.conversation import CLUSTER_ID, creatable, heartbeat, registration
from tests.unit.driver.controller.voters import Disk, Voters

BROKERS = [(node_id, f"rack-{node_id}") for node_id in range(3)]
CONFIG = {"controller.quorum.fetch.timeout.ms": "1000", "broker.session.timeout.ms": "60000"}


@contextmanager
def controller(directory: Path) -> Iterator[ControllerProcess]:
    """The controller of three brokers, in its process."""
    process = ControllerProcess.launch()
    directory.mkdir(exist_ok=True)
    try:
        process.start(
            BrokerConfig.from_mapping(CONFIG, racks=3),
            directory,
            secret=SECRET,
            expected_brokers=BROKERS,
            new_cluster_id=CLUSTER_ID,
        )
        yield process
    finally:
        process.stop()


def port_of(process: ControllerProcess) -> int:
    return int(process.bootstrap_servers.rpartition(":")[2])


def connect(process: ControllerProcess) -> BlockingChannel:
    return BlockingChannel("127.0.0.1", port_of(process), "test", timeout_s=20, login=SECRET.login)


def leader_epoch(channel: BlockingChannel) -> int:
    topic = TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(PartitionData(partition_index=0),))
    response = channel.request(DescribeQuorumRequest(topics=(topic,)))
    return int(response.topics[0].partitions[0].leader_epoch)


def is_running(process_id: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def killed(process: ControllerProcess) -> None:
    """Kill the process, and return when the next one leads."""
    process_id = process.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGKILL)
    wait_for(lambda: process.process_id not in (None, process_id), "another process")
    wait_for(lambda: process.leads, "its leadership")


def test_process_that_is_killed_is_back_at_its_port_and_leads_with_a_higher_epoch(tmp_path: Path) -> None:
    """Brokers and their ids stay; a connection that came in between is answered, and none is refused."""
    disks = {number: Disk(tmp_path / f"voter-{number}") for number in range(3)}
    with controller(tmp_path / "controller") as process, Voters(port_of(process), disks):
        wait_for(lambda: process.cluster_id is not None, "the first leadership")
        with connect(process) as channel:
            reply = channel.request(registration(0, port=port_of(process)))
            broker_epoch = reply.broker_epoch
            assert reply.error_code is ErrorCode.none
            assert not channel.request(heartbeat(0, broker_epoch, broker_epoch)).is_fenced
            epoch_before = leader_epoch(channel)
        began_s = time.monotonic()
        killed(process)
        with connect(process) as channel:
            assert leader_epoch(channel) > epoch_before
            # The same registration: neither fenced nor asked to come again.
            beat = channel.request(heartbeat(0, broker_epoch, broker_epoch))
            assert (beat.error_code, beat.is_fenced, beat.should_shut_down) == (ErrorCode.none, False, False)
            reply = channel.request(CreateTopicsRequest(topics=(creatable("flights", 1, 1),)))
            assert reply.topics[0].error_code is ErrorCode.none
        assert time.monotonic() - began_s < 10
        assert process.cluster_id == CLUSTER_ID
        assert process.failure is None


def test_size_that_is_confirmed_is_that_of_the_state_or_was_given_up(tmp_path: Path) -> None:
    """A size that another change replaced before the next state message would be waited for for ever."""
    disks = {number: Disk(tmp_path / f"voter-{number}") for number in range(3)}
    with controller(tmp_path / "controller") as process, Voters(port_of(process), disks):
        wait_for(lambda: process.leads, "the leadership")
        for racks in range(4, 14):
            wait_for(partial(process.resize, SizeChange(racks=racks)), "the confirmation")
            state = process.state
            assert state is not None
            assert state.racks == racks


def test_broker_that_had_to_leave_is_named_to_the_next_process(tmp_path: Path) -> None:
    """Spark decommissions an executor while there is no controller: the broker would be cut off with it."""
    disks = {number: Disk(tmp_path / f"voter-{number}") for number in range(3)}
    with controller(tmp_path / "controller") as process, Voters(port_of(process), disks):
        wait_for(lambda: process.cluster_id is not None, "the first leadership")
        with connect(process) as channel:
            broker_epochs = {}
            for broker_id in (0, 1):
                reply = channel.request(registration(broker_id, port=port_of(process)))
                broker_epochs[broker_id] = reply.broker_epoch
                beat = heartbeat(broker_id, reply.broker_epoch, reply.broker_epoch)
                assert not channel.request(beat).is_fenced
        process.rack_attempts = lambda: {0: 1, 1: 2}
        process_id = process.process_id
        assert process_id is not None
        os.kill(process_id, signal.SIGKILL)
        wait_for(lambda: process.process_id != process_id, "the end")
        process.broker_leaves(0, 1, "executor 7 is decommissioned", is_lost=False)
        process.broker_leaves(1, 1, "an executor of the attempt before", is_lost=False)
        wait_for(lambda: process.process_id not in (None, process_id), "the next process")
        wait_for(lambda: process.leads, "its leadership")
        with connect(process) as channel:

            def leaves(broker_id: int) -> bool:
                epoch = broker_epochs[broker_id]
                return bool(channel.request(heartbeat(broker_id, epoch, 1 << 30)).should_shut_down)

            def leaves_alone() -> bool:
                # The other one has to know of it.
                assert not leaves(1)
                return leaves(0)

            wait_for(leaves_alone, "broker 0 to be asked to leave")


DRIVER = f"""
import sys, time
from pathlib import Path
from sparklog.driver.process.controller_process import ControllerProcess
from sparklog.node.config import BrokerConfig
from tests.application_secret import SECRET
if __name__ == "__main__":
    process = ControllerProcess.launch()
    process.start(
        BrokerConfig.from_mapping({{}}, racks=3), Path(sys.argv[1]), secret=SECRET,
        expected_brokers={BROKERS!r}, new_cluster_id={CLUSTER_ID!r},
    )
    while process._state is None:
        time.sleep(0.01)
    FORK
    print(process.process_id, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "fork",
    ["pass", "import os; os.fork() or time.sleep(60)"],
    ids=["alone", "with a forked process of the user's"],
)
def test_process_ends_with_a_driver_that_is_killed(tmp_path: Path, fork: str) -> None:
    """Nothing of an application is left running, nor holds its ports."""
    directory = tmp_path / "controller"
    directory.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER.replace("FORK", fork), str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as driver:
        assert driver.stdout is not None
        process_id = int(driver.stdout.readline())
        assert is_running(process_id)
        # A Ctrl-C is for the driver, and a service manager's SIGTERM too.
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(process_id, ignored)
        assert is_running(process_id)
        driver.kill()
        driver.wait()
        wait_for(lambda: not is_running(process_id), "the controller's end")
        with contextlib.suppress(ProcessLookupError):  # the forked one, which Spark would end
            os.killpg(driver.pid, signal.SIGKILL)


def test_process_inherits_nothing_but_its_socket_and_standard_error(tmp_path: Path) -> None:
    """Files and connections of the user's would stay open for as long as the cluster runs."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        with controller(tmp_path / "controller") as process:
            wait_for(lambda: process._state is not None, "the process")
            pipe = os.fstat(write_end).st_ino
            links = Path(f"/proc/{process.process_id}/fd").iterdir()
            inherited = [str(link.readlink()) for link in links]
            assert inherited
            assert f"pipe:[{pipe}]" not in inherited
    finally:
        os.close(read_end)
        os.close(write_end)


def test_start_whose_process_ends_at_once_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a module that it needs, for instance: it is tried again, but not for ever."""
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each and Path(each, "asyncio").exists()])
    with (
        controller(tmp_path / "controller") as process,
        pytest.raises(StartError, match=r"ends before it serves \(exit status 1\)"),
    ):
        process.wait_until_unfenced(3, timeout_s=30)
    assert caplog.text.count("is started again") == 2


def test_failure_of_the_process_is_raised_in_the_driver(tmp_path: Path) -> None:
    """By its class, with its text: here that a directory is none."""
    (tmp_path / "file").write_text("")
    launched = ControllerProcess.launch()
    try:
        launched.start(
            BrokerConfig.from_mapping(CONFIG, racks=3),
            tmp_path / "file",
            secret=SECRET,
            expected_brokers=BROKERS,
            new_cluster_id=CLUSTER_ID,
        )
        with pytest.raises(StartError, match="the controller can't start: "):
            launched.wait_until_unfenced(3, timeout_s=30)
    finally:
        launched.stop()


def test_log_lines_of_the_process_are_the_drivers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With their names, levels and times, wherever the driver's own lines go."""
    caplog.set_level(logging.INFO)
    with controller(tmp_path / "controller") as process:
        wait_for(lambda: "waits for brokers" in caplog.text, "the line")
        (record,) = (each for each in caplog.records if "waits for brokers" in each.message)
        assert record.name == "sparklog.driver.controller.server"
        assert record.levelno == logging.INFO
        assert process.bootstrap_servers in record.message
