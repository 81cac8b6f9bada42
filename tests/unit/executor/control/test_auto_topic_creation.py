"""Topics that a broker asks the controller for because clients asked for their metadata."""

import asyncio
from datetime import timedelta
from typing import Any

from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse

from sparklog.executor.control.auto_topic_creation import AutoTopicCreation
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Deferred, Request
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.controller_script import linked_controller

NO_TIME = timedelta(0)


def test_auto_topic_creation_asks_once_however_often_it_is_asked() -> None:
    """Every client of a new topic asks for it, several times a second."""

    async def scenario() -> list[list[str]]:
        asked: list[list[str]] = []
        answers: list[tuple[Deferred, Any]] = []

        def create(request: Request) -> Any:
            asked.append([topic.name for topic in request.body.topics])
            deferred = Deferred()
            response = CreateTopicsResponse(
                throttle_time=NO_TIME,
                topics=tuple(
                    CreatableTopicResult(
                        name=topic.name,
                        topic_id=None,
                        error_code=ErrorCode.none,
                        error_message=None,
                        configs=None,
                    )
                    for topic in request.body.topics
                ),
            )
            answers.append((deferred, response))
            return deferred

        async with linked_controller({ApiKey.CREATE_TOPICS: create}) as (_, link):
            creation = AutoTopicCreation(link, BrokerConfig())
            creation.create(["a", "b", "a"])
            creation.create(["a"])
            creation.create(["b", "c"])
            async with asyncio.timeout(10):
                while len(answers) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                for deferred, response in answers:
                    deferred.complete(response)
                while len(answers) < 3:
                    creation.create(["a"])
                    await asyncio.sleep(0.001)
            await creation.close()
        return asked

    assert asyncio.run(scenario()) == [["a", "b"], ["c"], ["a"]]
