"""One broker as a process without Spark, forked from one that has a broker's code loaded already.

Loading it, with the schemas (`loaded_broker.py`), takes longer than all else that a start of a broker does,
and tests start hundreds. Brokers are forked by multiprocessing's own server; it ends with the process that
started it.

A broker ends like a broker task: SIGTERM and SIGHUP begin a controlled shutdown, and so does the end of the
test run, so that one that is killed leaves nothing running. The broker's parent says nothing of that: it is
the server, which lives as long as any broker has the descriptor by which it sees its own end.
"""

import asyncio
import faulthandler
import logging
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, Final

from sparklog.executor.broker import Broker
from sparklog.node.config import BrokerConfig
from sparklog.node.loop.loop_lag import run_watched
from tests.hindrance import hinder
from tests.zones.network import enter

TELL_STACKS: Final = signal.SIGUSR1
"""Has a broker write to its log what each of its threads is at, also when none of them gets on."""
REPOSITORY: Final = Path(__file__).parents[1]


def prepare() -> None:
    """Start the process that brokers are forked from, unless it runs; it holds some descriptors here."""
    multiprocessing.set_forkserver_preload(["tests.loaded_broker"])
    forkserver.ensure_running()


class BrokerProcess:
    """A broker's process; what there is of `subprocess.Popen` means the same."""

    def __init__(self, arguments: dict[str, Any], log: Path, descriptor_limit: int | None) -> None:
        """Start it; what it writes to stdout and stderr goes to the end of `log`."""
        prepare()
        self._process = multiprocessing.get_context("forkserver").Process(
            target=_run, args=(arguments, log, descriptor_limit), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None, "it is started"
        self.pid = self._process.pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        if self._status is None and (status := self._process.exitcode) is not None:
            self._status = status
            self._process.close()
        return self._status

    def wait(self, timeout_s: float | None = None) -> int:
        """Return the exit status when it has ended.

        Raises:
            TimeoutExpired: it runs on.
        """
        if self._status is None:
            self._process.join(timeout_s)
        status = self.poll()
        if status is None:
            raise subprocess.TimeoutExpired("a broker", timeout_s or 0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(arguments: dict[str, Any], log: Path, descriptor_limit: int | None) -> None:
    os.chdir(REPOSITORY)
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("ab") as output, Path(os.devnull).open("rb") as nothing:
        for descriptor, source in enumerate((nothing, output, output)):
            os.dup2(source.fileno(), descriptor)
    if arguments["namespace"] is not None:
        enter(arguments["namespace"])
    faulthandler.register(TELL_STACKS)
    if descriptor_limit is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor_limit, descriptor_limit))
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s broker {arguments['node_id']} %(name)s: %(message)s",
    )
    run_watched(_serve(arguments), f"broker {arguments['node_id']}")


async def _serve(arguments: dict[str, Any]) -> None:
    broker = Broker(
        node_id=arguments["node_id"],
        rack=arguments["rack"],
        controller=(arguments["controller_host"], arguments["controller_port"]),
        secret=arguments["secret"],
        config=BrokerConfig.from_mapping(arguments["config"]),
        directories=[Path(directory) for directory in arguments["directories"]],
        host_name=arguments["host_name"],
        owner_epoch=arguments["owner_epoch"],
    )
    loop = asyncio.get_running_loop()
    for leave_signal in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(leave_signal, broker.life.stop, leave_signal.name)
    test_run = multiprocessing.parent_process()
    assert test_run is not None, "a child of multiprocessing"
    loop.add_reader(test_run.sentinel, _leave, broker, test_run.sentinel)
    hindrance = asyncio.create_task(hinder(broker.node_id))
    try:
        await broker.run()
    finally:
        hindrance.cancel()
        loop.remove_reader(test_run.sentinel)


def _leave(broker: Broker, sentinel: int) -> None:
    asyncio.get_running_loop().remove_reader(sentinel)
    broker.life.stop("the test run is gone")
