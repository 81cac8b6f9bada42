"""The task that runs a broker: a Python worker of an executor, as long as the cluster runs.

It is a task of a barrier stage, or an ordinary one under Spark's dynamic allocation. Spark starts a lost
ordinary task again; such an attempt ends at once, since the driver counts a rack's attempts and chooses its
host.

Spark ends such a worker in several ways, and all but SIGKILL leave time to hand over leaderships: SIGHUP
comes from its daemon when the executor exits, SIGTERM from an operator. If the daemon itself dies, the worker
lives on under another parent, without a signal; so the parent's end is waited for. The watchdog kills a
worker that is stopped and not continued (`executor/process/watchdog.py`). If a broker shuts down in such a
way while the cluster goes on, its task fails, so that the broker is started again, and its directories stay.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark import BarrierTaskContext, TaskContext

from sparklog.executor.broker import Broker
from sparklog.executor.control.machine.broker_lifecycle import BrokerState, RegistrationRefusedError
from sparklog.executor.loop.concurrency import end
from sparklog.executor.process.barrier_socket import strangers_of_socket
from sparklog.executor.process.watched import watched
from sparklog.hosting import BrokerAssignment, BrokerEnd
from sparklog.node.config import BrokerConfig, ConfigError
from sparklog.node.log_lines import written_aside
from sparklog.node.loop.garbage import freezing_survivors
from sparklog.node.loop.loop_lag import run_watched
from sparklog.node.storage import DirectoryLockedError, ForeignDirectoryError
from sparklog.node.storage.private_directories import make_own_directory

logger = logging.getLogger(__name__)

PARENT_POLL_S = 0.5
CONNECT_TIMEOUT_S = 10.0
LOCK_POLL_S = 0.05
LOCK_TIMEOUT_S = 10.0
"""How long the task before this one may hold the directories: Spark lets one of a job that failed live for up
to 3.6 s, and its flush may take long.
"""


class BrokerLeftError(Exception):
    """The broker shut down cleanly, but alone: the cluster goes on and restarts it."""


def run(assignment: BrokerAssignment) -> BrokerEnd:
    """Run the broker of `assignment` until it shuts down.

    Returns when the whole cluster shuts down, or with a refusal that a retry would not change; raises errors
    that a retry may mend, so that Spark fails the job and the rack's supervisor submits it again.

    Raises:
        BrokerLeftError: The broker was stopped by a signal, or lost its executor.
        Exception: Any error of `Broker.run` that a retry may mend.
    """
    task = TaskContext.get()
    if task is not None and task.attemptNumber() > 0:
        return BrokerEnd(assignment.node_id, refusal=None, is_retry=True)
    line_format = f"%(asctime)s %(levelname)s broker {assignment.node_id} %(name)s: %(message)s"
    with written_aside(sys.stderr, assignment.log_level, line_format):
        try:
            if assignment.temporary:
                for directory in assignment.directories:
                    make_own_directory(Path(directory).parent)
            with freezing_survivors():
                run_watched(_serve(assignment), f"broker {assignment.node_id}")
        except (ForeignDirectoryError, RegistrationRefusedError, ConfigError, PermissionError) as refusal:
            logger.error("Refused: %s", refusal)
            return BrokerEnd(assignment.node_id, refusal=str(refusal))
    if assignment.temporary:
        remove_temporary(assignment.directories)
    return BrokerEnd(assignment.node_id, refusal=None)


async def _serve(assignment: BrokerAssignment) -> None:
    config = BrokerConfig.from_mapping(assignment.configuration)
    task = TaskContext.get()
    if isinstance(task, BarrierTaskContext):
        if not config.sparklog_trusted_network:
            _warn_of_strangers(getattr(task, "_conn_info", None))  # since PySpark 4.1
        address = task.getTaskInfos()[task.partitionId()].address
    else:
        address = address_towards(assignment.controller_host, assignment.controller_port)
    broker = Broker(
        node_id=assignment.node_id,
        rack=assignment.rack,
        controller=(assignment.controller_host, assignment.controller_port),
        secret=assignment.secret,
        config=config,
        directories=[Path(directory) for directory in assignment.directories],
        ids_per_rack=assignment.ids_per_rack,
        host_name=host_name(address, assignment.controller_host),
        on_state=_log_state,
        owner_epoch=assignment.owner_epoch,
    )
    loop = asyncio.get_running_loop()
    for leave_signal in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(leave_signal, broker.life.stop, leave_signal.name)
    leaving_with_parent = asyncio.create_task(_leave_with_parent(broker))
    try:
        with watched():
            await run_when_unlocked(broker)
    finally:
        await end(leaving_with_parent)
    if not broker.life.cluster_ended:
        reason = broker.life.stop_reason or "the controller stopped it"
        raise BrokerLeftError(f"broker {broker.node_id} shut down alone: {reason}")


def address_towards(host: str, port: int) -> str:
    """Return the address from which this host connects to the listener of another one; nothing is sent.

    Only a barrier task has the executor's address as Spark's driver sees it, which is the same one unless
    addresses are translated on the way. A host may have addresses without a listener, of IPv6 for instance;
    only a connection shows which one leads there.

    Raises:
        OSError: No address of the host accepts connections.
    """
    with socket.create_connection((host, port), CONNECT_TIMEOUT_S) as probe:
        own_host = str(probe.getsockname()[0])
    return f"[{own_host}]:0" if probe.family is socket.AF_INET6 else f"{own_host}:0"


def _warn_of_strangers(barrier_socket: str | int | None) -> None:
    """Warn if others can end this executor by its socket file; ports are looked at before a start."""
    if isinstance(barrier_socket, str) and (strangers := strangers_of_socket(Path(barrier_socket))):
        logger.warning(
            "This executor can be ended by %s: they may connect to %s. Start Spark's processes with "
            "umask 022 or 077, or set sparklog.trusted.network=true (docs/security.md)",
            strangers,
            barrier_socket,
        )


def host_name(executor_address: str, controller_host: str) -> str:
    """Return this host's name for other hosts, given the executor's address in Spark's driver (`host:port`).

    That is the address from which the executor connected to the driver. A loopback address means that they
    share a host, and the name of the controller's host is known to work.
    """
    host = executor_address.rpartition(":")[0].strip("[]")
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    return controller_host if is_loopback else host


def remove_temporary(directories: Sequence[str]) -> None:
    """Remove a broker's directories, and with the host's last broker the cluster's directory above them."""
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty, or already removed
            Path(directory).parent.rmdir()


async def run_when_unlocked(broker: Broker) -> None:
    """Run the broker, once the process before it has released the directories.

    Raises:
        DirectoryLockedError: it has not within `LOCK_TIMEOUT_S`, or the broker was stopped meanwhile.
        Exception: any error of `Broker.run`.
    """
    deadline_s = time.monotonic() + LOCK_TIMEOUT_S
    waiting = False
    while True:
        try:
            await broker.run()
            return
        except DirectoryLockedError as error:
            if time.monotonic() > deadline_s or broker.life.stop_reason is not None:
                raise
            if not waiting:
                logger.info("Waiting for the previous task to release the directories: %s", error)
                waiting = True
        await asyncio.sleep(LOCK_POLL_S)


async def _leave_with_parent(broker: Broker) -> None:
    await end_of_parent(os.getppid())
    broker.life.stop("the Spark daemon that started this worker is gone")


async def end_of_parent(parent: int) -> None:
    """Return when the process `parent` is this one's parent no more."""
    try:
        descriptor = os.pidfd_open(parent)
    except (AttributeError, OSError):  # no Linux, or an old one, or the parent is gone
        while os.getppid() == parent:  # noqa: ASYNC110 - this kernel has no event for it
            await asyncio.sleep(PARENT_POLL_S)
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    try:
        loop.add_reader(descriptor, ended.set)
        # The number may be another process's by now: then the parent was gone before.
        if os.getppid() == parent:
            await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _log_state(state: BrokerState) -> None:
    logger.info("%s", state.value)
