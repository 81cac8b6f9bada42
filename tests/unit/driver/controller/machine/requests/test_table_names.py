"""No two topics are one table."""

from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource

from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable

TABLE = {"sparklog.table.enable": "true"}
STORE = {"sparklog_remote_uri": "s3://bucket/prefix", "sparklog_table_catalog_uri": "http://c"}


def create(conversation: Conversation, **topics: dict[str, str]) -> list[tuple[ErrorCode, str | None]]:
    """Create topics that are tables, with these keys besides; return the answers."""
    asked = [creatable(name, 1, 1, configs={**TABLE, **config}) for name, config in topics.items()]
    answer = conversation.create(*asked).reply
    return [(ErrorCode(topic.error_code), topic.error_message) for topic in answer.topics]


def alter(conversation: Conversation, topic: str, key: str, value: str) -> ErrorCode:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=(change,))
    answer = conversation.say(
        IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    ).reply
    return ErrorCode(answer.responses[0].error_code)


def test_topic_is_not_made_the_table_of_another_topic() -> None:
    """Both would write the snapshots of one table."""
    conversation = Conversation(**STORE).start(0)
    assert create(conversation, orders={}) == [(ErrorCode.none, None)]
    named = {"sparklog.table.name": "topics.Orders"}
    ((error, message),) = create(conversation, other=named)
    assert (error, message) == (
        ErrorCode.invalid_config,
        "sparklog.table.name=topics.orders: the topic orders is this table",
    )
    assert [error for error, _ in create(conversation, a=named | {"sparklog.table.name": "n.t"}, b={})] == [
        ErrorCode.none,
        ErrorCode.none,
    ]
    assert alter(conversation, "a", "sparklog.table.name", "topics.orders") is ErrorCode.invalid_config
    assert alter(conversation, "a", "retention.ms", "7") is ErrorCode.none
    assert alter(conversation, "orders", "sparklog.table.enable", "false") is ErrorCode.none
    assert alter(conversation, "a", "sparklog.table.enable", "false") is ErrorCode.none
    assert alter(conversation, "a", "sparklog.table.name", "topics.orders") is ErrorCode.none
    assert alter(conversation, "a", "sparklog.table.enable", "true") is ErrorCode.none
    assert alter(conversation, "orders", "sparklog.table.enable", "true") is ErrorCode.invalid_config


def test_topics_of_one_request_are_not_one_table() -> None:
    """The first is created, the second refused."""
    conversation = Conversation(**STORE).start(0)
    name = {"sparklog.table.name": "n.t"}
    errors = [error for error, _ in create(conversation, a=name, b=name)]
    assert errors == [ErrorCode.none, ErrorCode.invalid_config]
