"""Produce."""

from typing import Any, Final

from sparklog.node.apis.refusals import item, said
from sparklog.node.apis.row import ApiRow, Offer
from sparklog.node.authorization.guards.guard import answer_to
from sparklog.node.authorization.guards.topics import produce
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions
from sparklog.protocol.codec.fixed.produce import request_reader
from sparklog.protocol.errors import KafkaError


def _refused(body: Any, error: KafkaError) -> Any:
    path = ("responses", "partition_responses")
    responses = tuple(
        item(
            body,
            "responses",
            name=getattr(topic, "name", ""),
            topic_id=getattr(topic, "topic_id", None),
            partition_responses=tuple(
                item(body, *path, index=data.index, base_offset=-1, log_append_time=None, **said(error))
                for data in topic.partition_data
            ),
        )
        for topic in body.topic_data
    )
    return answer_to(body, responses=responses)


PRODUCE: Final = ApiRow(
    ApiKey.PRODUCE,
    SupportedVersions(3, 13),
    broker=Offer(produce, under_lease=True, fixed_reader=request_reader),
    refused=_refused,
    memory_times=6,
)
