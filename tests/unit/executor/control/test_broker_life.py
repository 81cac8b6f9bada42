"""A broker's life on its event loop, which others end."""

import asyncio
from typing import Final

import pytest

from sparklog.executor.control.broker_life import BrokerLife
from sparklog.executor.control.controller_link import ControllerLink
from sparklog.node.config import BrokerConfig
from sparklog.protocol.types import BrokerEpoch

DEADLINE_S: Final = 5.0
NOBODYS_PORT: Final = 1


@pytest.mark.parametrize("turns", range(3))
def test_life_that_is_cancelled_as_it_is_woken_ends(turns: int) -> None:
    """A broker of which another part had failed would neither serve nor end, and never be started again."""

    async def registered(broker_epoch: BrokerEpoch) -> None:
        raise AssertionError("there is nobody to register with")

    async def scenario() -> None:
        life = BrokerLife(1, BrokerConfig.from_mapping({}), lambda state: None)
        life.begin(ControllerLink("127.0.0.1", NOBODYS_PORT, "broker-1"))
        identity = life.new_incarnation("cluster", (), (), None)
        living = asyncio.create_task(life.live(identity, registered, lambda: False))
        await asyncio.sleep(0)
        life.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        living.cancel()
        await asyncio.wait([living], timeout=DEADLINE_S)
        assert living.cancelled()

    asyncio.run(scenario())
