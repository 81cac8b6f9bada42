"""Topic configurations: changed whole, or refused whole."""

import logging
from typing import Any

import pytest
from kio.schema.alter_configs.v2 import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterableConfig as LegacyConfig
from kio.schema.alter_configs.v2.request import AlterConfigsResource as LegacyResource
from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.schemas import ConfigRecord, ResourceType
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def conversation() -> Conversation:
    """A topic with one value of its own."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", 1, 1, configs={"cleanup.policy": "compact"}))
    return conversation


def alter(
    conversation: Conversation, *configs: tuple[str, int, str | None], name: str = "t", **fields: Any
) -> ControllerResult:
    """Change keys of a topic."""
    resource = AlterConfigsResource(
        resource_type=fields.pop("resource_type", 2),
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ),
    )
    return conversation.say(
        IncrementalAlterConfigsRequest(
            resources=(resource,), validate_only=fields.pop("validate_only", False)
        )
    )


def config_record(key: str, value: str | None) -> ConfigRecord:
    """Return the record that sets a key of the topic."""
    return ConfigRecord(resource_type=2, resource_name="t", name=key, value=value)


def test_incremental_changes_only_what_differs(conversation: Conversation) -> None:
    """Every record wakes every broker."""
    decision = alter(
        conversation,
        ("retention.ms", SET, "5000"),
        ("cleanup.policy", APPEND, "delete"),
        ("segment.bytes", DELETE, None),
    )
    assert decision.records == [
        config_record("cleanup.policy", "compact,delete"),
        config_record("retention.ms", "5000"),
    ]
    assert alter(conversation, ("cleanup.policy", SUBTRACT, "compact")).records == [
        config_record("cleanup.policy", "delete")
    ]
    assert alter(conversation, ("retention.ms", DELETE, None)).records == [
        config_record("retention.ms", None)
    ]


def test_incremental_append_to_unset_list_starts_from_default() -> None:
    """What holds by default must not vanish because something is added to it."""
    conversation = Conversation().start(0)
    conversation.create(creatable("t", 1, 1))
    assert alter(conversation, ("cleanup.policy", APPEND, "compact")).records == [
        config_record("cleanup.policy", "delete,compact")
    ]


@pytest.mark.parametrize(
    ("config", "error_code"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.invalid_config),
        (("no.such.key", SET, "1"), ErrorCode.invalid_config),
        (("retention.ms", APPEND, "1"), ErrorCode.invalid_config),
        (("cleanup.policy", SET, "x" * 40_000), ErrorCode.invalid_config),
        (("retention.ms", SET, None), ErrorCode.invalid_request),
        (("retention.ms", 9, "1"), ErrorCode.invalid_request),
    ],
)
def test_incremental_bad_value_changes_nothing_of_the_resource(
    conversation: Conversation, config: tuple[str, int, str | None], error_code: ErrorCode
) -> None:
    """Half of a change may be worse than none."""
    decision = alter(conversation, ("segment.ms", SET, "1000"), config)
    assert (decision.records, decision.reply.responses[0].error_code) == ([], error_code)
    assert decision.reply.responses[0].error_message


@pytest.mark.parametrize(
    ("fields", "error_code"),
    [
        ({"name": "missing"}, ErrorCode.unknown_topic_or_partition),
        ({"name": "0", "resource_type": 4}, ErrorCode.invalid_config),
        ({"name": "0", "resource_type": 32}, ErrorCode.invalid_config),
        ({"name": "0", "resource_type": 16}, ErrorCode.invalid_request),
    ],
)
def test_incremental_other_resource_is_refused(
    conversation: Conversation, fields: dict[str, Any], error_code: ErrorCode
) -> None:
    """What cannot be changed must not look as if it had been."""
    decision = alter(conversation, ("retention.ms", SET, "1"), **fields)
    assert (decision.records, decision.reply.responses[0].error_code) == ([], error_code)


def test_incremental_validate_only_changes_nothing(conversation: Conversation) -> None:
    """A dry run must not be a run."""
    decision = alter(conversation, ("retention.ms", SET, "1"), validate_only=True)
    assert (decision.records, decision.reply.responses[0].error_code) == ([], ErrorCode.none)


def test_legacy_alter_replaces_everything(conversation: Conversation) -> None:
    """In the older API a key that is not named goes back to its default."""
    resource = LegacyResource(
        resource_type=2, resource_name="t", configs=(LegacyConfig(name="retention.ms", value="9"),)
    )
    decision = conversation.say(AlterConfigsRequest(resources=(resource,), validate_only=False))
    assert decision.records == [config_record("cleanup.policy", None), config_record("retention.ms", "9")]


LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"


def test_broker_is_told_what_it_can_obey_while_it_runs(conversation: Conversation) -> None:
    """One broker and all of them are different resources; kafka-reassign-partitions throttles by one."""
    for name in ("0", ""):
        decision = alter(conversation, (LEADER_RATE, SET, "1000000"), name=name, resource_type=4)
        assert decision.reply.responses[0].error_code is ErrorCode.none
        assert decision.records == [
            ConfigRecord(resource_type=4, resource_name=name, name=LEADER_RATE, value="1000000")
        ]
    decision = alter(conversation, (LEADER_RATE, DELETE, None), name="0", resource_type=4)
    assert decision.records == [
        ConfigRecord(resource_type=4, resource_name="0", name=LEADER_RATE, value=None)
    ]
    assert conversation.image.broker_configs(None)[LEADER_RATE] == "1000000"


@pytest.mark.parametrize(
    ("name", "key", "value", "error_code"),
    [
        ("0", "log.dirs", "/elsewhere", ErrorCode.invalid_request),
        ("", "num.partitions", "3", ErrorCode.invalid_request),
        ("0", "min.insync.replicas", "2", ErrorCode.invalid_config),
        ("", "min.insync.replicas", "0", ErrorCode.invalid_request),
        ("0", "unclean.leader.election.enable", "true", ErrorCode.invalid_request),
        ("", "log.cleaner.enable", "false", ErrorCode.invalid_request),
        ("", "log.cleaner.threads", "0", ErrorCode.invalid_request),
        ("", "log.cleaner.threads", "3", ErrorCode.invalid_request),
        ("", "log.cleaner.io.max.bytes.per.second", "nan", ErrorCode.invalid_request),
        ("", "log.cleaner.io.max.bytes.per.second", "0", ErrorCode.invalid_request),
        ("", "log.cleaner.io.buffer.load.factor", "0", ErrorCode.invalid_request),
        ("", "log.cleaner.thread", "2", ErrorCode.invalid_config),
        ("", LEADER_RATE, "fast", ErrorCode.invalid_request),
        ("", "max.connections", "0", ErrorCode.invalid_request),
        ("0", "max.connections.per.ip", "0", ErrorCode.invalid_request),
        ("", "max.connections.per.ip.overrides", "somewhere:1", ErrorCode.invalid_request),
        ("", LEADER_RATE, "-1", ErrorCode.invalid_request),
        ("", "log.retention.ms", "0", ErrorCode.invalid_request),
        ("7", LEADER_RATE, "1", ErrorCode.invalid_request),
        ("zero", LEADER_RATE, "1", ErrorCode.invalid_request),
        ("-1", LEADER_RATE, "1", ErrorCode.invalid_request),
    ],
)
def test_what_a_broker_would_not_obey_is_refused_and_nothing_else_of_it_changes(
    conversation: Conversation, name: str, key: str, value: str, error_code: ErrorCode
) -> None:
    """A value that is kept and not obeyed, or that ends whoever reads it, is worse than an error."""
    decision = alter(conversation, (FOLLOWER_RATE, SET, "5"), (key, SET, value), name=name, resource_type=4)
    assert decision.records == []
    assert decision.reply.responses[0].error_code is error_code


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("0", "background.threads", "9"),
        ("", "background.threads", "20"),
        ("0", "sasl.kerberos.min.time.before.relogin", "58000"),
        ("0", "metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"),
        ("", "num.io.threads", "4"),
        ("", "group.share.assignment.interval.ms", "0"),
        ("", "group.consumer.assignment.interval.ms", "5000"),
    ],
)
def test_key_that_kafka_changes_at_run_time_is_kept(
    conversation: Conversation, name: str, key: str, value: str
) -> None:
    """Tools set these as a matter of course, and whole suites end at an error."""
    decision = alter(conversation, (key, SET, value), name=name, resource_type=4)
    assert decision.reply.responses[0].error_code is ErrorCode.none
    assert decision.records == [ConfigRecord(resource_type=4, resource_name=name, name=key, value=value)]
    resource = LegacyResource(
        resource_type=4,
        resource_name=name,
        configs=() if name else (LegacyConfig(name="min.insync.replicas", value="1"),),
    )
    decision = conversation.say(AlterConfigsRequest(resources=(resource,), validate_only=False))
    assert decision.records == [ConfigRecord(resource_type=4, resource_name=name, name=key, value=None)]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("", "sasl.kerberos.min.time.before.relogin", "58000"),
        ("0", "sasl.kerberos.min.time.before.relogin", "soon"),
        ("0", "background.threads", "21"),
        ("0", "background.threads", "4"),
        ("", "num.io.threads", "17"),
        ("", "num.network.threads", "0"),
        ("", "group.consumer.assignment.interval.ms", "15001"),
        ("0", "principal.builder.class", "com.example.Builder"),
        ("0", "cordoned.log.dirs", "/a"),
        ("0", "listeners", "PLAINTEXT://127.0.0.1:0"),
        ("0", "listener.name.plaintext.ssl.keystore.location", "/a"),
    ],
)
def test_value_that_kafka_refuses_or_that_would_be_kept_in_vain_is_refused(
    conversation: Conversation, name: str, key: str, value: str
) -> None:
    """Type, bounds and level are Kafka's; classes, cordons and listeners cannot be changed here."""
    decision = alter(conversation, (key, SET, value), name=name, resource_type=4)
    assert (decision.records, decision.reply.responses[0].error_code) == ([], ErrorCode.invalid_request)


def test_list_that_is_kept_is_appended_to_its_default(conversation: Conversation) -> None:
    """As Kafka does with keys that it obeys."""
    key = "sasl.kerberos.principal.to.local.rules"
    decision = alter(conversation, (key, APPEND, "RULE:[1:$1]"), name="0", resource_type=4)
    assert decision.records[0].value == "DEFAULT,RULE:[1:$1]"


def test_list_of_throttled_replicas_is_checked(conversation: Conversation) -> None:
    """A slip in it would leave a move unthrottled, or throttle another one."""
    key = "leader.replication.throttled.replicas"
    for value in ("*", "", "0:1,12:3"):
        decision = alter(conversation, (key, SET, value))
        assert decision.reply.responses[0].error_code is ErrorCode.none
    for value in ("0", "0:1:2", "*,0:1", "a:b", "-1:0"):
        decision = alter(conversation, (key, SET, value))
        assert decision.reply.responses[0].error_code is ErrorCode.invalid_config


def test_topic_follows_what_all_brokers_were_told(conversation: Conversation) -> None:
    """The answer to CreateTopics says what the topic has now, not what the properties say."""
    alter(conversation, ("log.retention.ms", SET, "1234"), name="", resource_type=4)
    (created,) = conversation.create(creatable("late", 1, 1)).reply.topics
    assert {config.name: config.value for config in created.configs}["retention.ms"] == "1234"


MIN_LAG, MAX_LAG = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


def test_what_a_broker_is_told_may_not_contradict_what_it_was_told_before(conversation: Conversation) -> None:
    """Every topic that is made on top of it would be refused."""

    def outcome(key: str, operation: int, value: str | None, name: str) -> ErrorCode:
        decision = alter(conversation, (key, operation, value), name=name, resource_type=4)
        code: ErrorCode = decision.reply.responses[0].error_code
        return code

    for name in ("0", ""):
        assert outcome(MIN_LAG, SET, "2000", name) is ErrorCode.none
        assert outcome(MAX_LAG, SET, "1000", name) is ErrorCode.invalid_request
        assert outcome(MAX_LAG, SET, "3000", name) is ErrorCode.none
        assert outcome(MIN_LAG, SET, "4000", name) is ErrorCode.invalid_request
        image = conversation.image
        told = image.broker_configs(int(name) if name else None)
        assert (told[MIN_LAG], told[MAX_LAG]) == ("2000", "3000")


def test_change_that_is_not_made_is_not_logged(
    conversation: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads the log after an accident looks for what was changed."""
    caplog.set_level(logging.INFO)
    alter(conversation, ("retention.ms", SET, "5000"), validate_only=True)
    alter(conversation, ("log.dirs", SET, "/elsewhere"), name="", resource_type=4)
    assert "changes" not in caplog.text
    alter(conversation, ("retention.ms", SET, "5000"))
    assert "Configuration of topic t changes: {'retention.ms': '5000'}" in caplog.text


GROUP = 32


def alter_group(
    conversation: Conversation, *configs: tuple[str, int, str | None], name: str = "g"
) -> ControllerResult:
    return alter(conversation, *configs, name=name, resource_type=GROUP)


def test_group_is_configured_before_it_exists(conversation: Conversation) -> None:
    """It may be told before its first member comes, as in Kafka."""
    decision = alter_group(conversation, ("consumer.session.timeout.ms", SET, "50000"))
    assert decision.reply.responses[0].error_code is ErrorCode.none
    assert decision.records == [
        ConfigRecord(
            resource_type=GROUP, resource_name="g", name="consumer.session.timeout.ms", value="50000"
        )
    ]
    assert alter_group(conversation, ("consumer.session.timeout.ms", DELETE, None)).records[0].value is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("consumer.session.timeout.ms", "44999", "greater than or equal to group.consumer.min.session"),
        ("consumer.session.timeout.ms", "60001", "less than or equal to group.consumer.max.session"),
        ("consumer.heartbeat.interval.ms", "4999", "group.consumer.min.heartbeat.interval.ms"),
        ("consumer.assignment.interval.ms", "15001", "group.consumer.max.assignment.interval.ms"),
        ("consumer.session.timeout.ms", "soon", "expected"),
        ("consumer.sesion.timeout.ms", "1", "Unknown group config name"),
        ("share.session.timeout.ms", "60001", "from 45000 to 60000"),
        ("share.auto.offset.reset", "by_duration:-P1D", "by_duration: and a duration"),
        ("streams.num.standby.replicas", "3", "from 0 to 2"),
    ],
)
def test_group_configuration_beyond_the_brokers_limits_is_refused(
    conversation: Conversation, key: str, value: str, said: str
) -> None:
    """One group must not make the coordinator work for all, or never notice who has gone."""
    (answer,) = alter_group(conversation, (key, SET, value)).reply.responses
    assert answer.error_code is ErrorCode.invalid_config
    assert said in answer.error_message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("share.auto.offset.reset", "by_duration:P1DT12H"),
        ("share.isolation.level", "read_committed"),
        ("streams.num.standby.replicas", "2"),
    ],
)
def test_configuration_of_share_and_streams_groups_is_kept_as_on_kafka(
    conversation: Conversation, key: str, value: str
) -> None:
    """Who brings all groups' configuration along must not be stopped by groups that are not served yet."""
    (record,) = alter_group(conversation, (key, SET, value)).records
    assert (record.name, record.value) == (key, value)  # type: ignore[union-attr]


def test_group_without_a_name_has_no_configuration(conversation: Conversation) -> None:
    """There is no default for all groups but the brokers' keys."""
    (answer,) = alter_group(
        conversation, ("consumer.session.timeout.ms", SET, "50000"), name=""
    ).reply.responses
    assert answer.error_code is ErrorCode.invalid_request


def test_client_metrics_are_told_listed_and_taken_away(conversation: Conversation) -> None:
    """A subscription is there while it says something (KIP-714)."""
    alterations = (("metrics", SET, "org.apache.kafka.producer."), ("match", APPEND, "client_id=a.*"))
    decision = alter(conversation, *alterations, name="m", resource_type=16)
    assert decision.reply.responses[0].error_code is ErrorCode.none
    key = (ResourceType.CLIENT_METRICS, "m")
    assert conversation.image.configs[key] == {
        "metrics": "org.apache.kafka.producer.",
        "match": "client_id=a.*",
    }
    refused = alter(conversation, ("interval.ms", SET, "1"), name="m", resource_type=16)
    assert (refused.records, refused.reply.responses[0].error_code) == ([], ErrorCode.invalid_request)
    alter(conversation, ("metrics", DELETE, None), ("match", DELETE, None), name="m", resource_type=16)
    assert key not in conversation.image.configs
