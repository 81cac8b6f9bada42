"""One broker as a process without Spark: `python -m tests.broker_process '<json arguments>'`.

Ends like a broker task: SIGTERM and SIGHUP begin a controlled shutdown, and so does the end of whoever
started it, so that a test run that is killed leaves nothing running.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from executor.broker import Broker
from sparklog.config import BrokerConfig
from sparklog.wire.loop_lag import run_watched

PARENT_POLL_S = 0.5


async def _serve(arguments: dict[str, Any]) -> None:
    broker = Broker(
        node_id=arguments["node_id"],
        rack=arguments["rack"],
        controller=(arguments["controller_host"], arguments["controller_port"]),
        config=BrokerConfig.from_mapping(arguments["config"]),
        directories=[Path(directory) for directory in arguments["directories"]],
        host_name="127.0.0.1",
    )
    loop = asyncio.get_running_loop()
    for leave_signal in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(leave_signal, broker.life.stop, leave_signal.name)
    watch = asyncio.create_task(_leave_with_parent(broker, arguments["parent"]))
    try:
        await broker.run()
    finally:
        watch.cancel()


async def _leave_with_parent(broker: Broker, parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel has no event for it
        await asyncio.sleep(PARENT_POLL_S)
    broker.life.stop("the test run is gone")


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format=f"%(asctime)s %(levelname)s broker {given['node_id']} %(name)s: %(message)s",
    )
    run_watched(_serve(given), f"broker {given['node_id']}")
