"""The barrier task that is a broker: a Python worker of an executor, for as long as the cluster runs.

Spark ends such a worker in several ways, and all but SIGKILL leave time to hand over: SIGHUP comes
from its daemon when the executor goes, SIGTERM from an operator. When the daemon itself dies the worker
lives on under another parent, which no signal tells; so the parent is watched.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

from executor.broker import Broker, BrokerState
from executor.lifecycle import BrokerRefusedError
from sparklog.config import BrokerConfig, ConfigError
from sparklog.hosting import BrokerAssignment, BrokerEnd
from sparklog.storage import ForeignDirectoryError

logger = logging.getLogger(__name__)

PARENT_POLL_S = 0.5


def run(assignment: BrokerAssignment) -> BrokerEnd:
    """Be the broker of `assignment` until it leaves.

    Returns with a refusal what no other attempt would change; raises what another attempt may, so that
    Spark fails the job and the rack's supervisor submits it again.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s broker {assignment.node_id} %(name)s: %(message)s",
        force=True,
    )
    try:
        asyncio.run(_serve(assignment))
    except (ForeignDirectoryError, BrokerRefusedError, ConfigError, PermissionError) as refusal:
        logger.error("refused: %s", refusal)
        return BrokerEnd(assignment.node_id, refusal=str(refusal))
    if assignment.temporary:
        for directory in assignment.directories:
            shutil.rmtree(directory, ignore_errors=True)
    return BrokerEnd(assignment.node_id, refusal=None)


async def _serve(assignment: BrokerAssignment) -> None:
    broker = Broker(
        cluster_id=assignment.cluster_id,
        node_id=assignment.node_id,
        rack=assignment.rack,
        controller=(assignment.controller_host, assignment.controller_port),
        config=BrokerConfig.from_mapping(assignment.configuration),
        directories=[Path(directory) for directory in assignment.directories],
        on_state=_log_state,
    )
    loop = asyncio.get_running_loop()
    for leave_signal in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(leave_signal, broker.stop, leave_signal.name)
    watch = asyncio.create_task(_leave_with_parent(broker))
    try:
        await broker.run()
    finally:
        watch.cancel()


async def _leave_with_parent(broker: Broker) -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel has no event for it
        await asyncio.sleep(PARENT_POLL_S)
    broker.stop("the Spark daemon that started this worker is gone")


def _log_state(state: BrokerState) -> None:
    logger.info("%s", state.value)
