"""What becomes of each of Kafka's client settings, in a read and in a write."""

import pytest

from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.kafka_options import KafkaOptions
from sparklog.user.dataframe.options import ReadOptions, WriteOptions

OF_KAFKAS_CLIENTS = """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
    batch.size bootstrap.servers buffer.memory check.crcs client.dns.lookup client.id client.rack
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level config.providers
    connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit
    enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
    interceptor.classes isolation.level key.deserializer key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
    metrics.sample.window.ms partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms
    retry.backoff.ms sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
    sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
    sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
    security.protocol security.providers send.buffer.bytes session.timeout.ms share.acknowledgement.mode
    share.acquire.mode socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class
    ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id value.deserializer value.serializer
"""
"""Names in ConsumerConfig and ProducerConfig of Kafka 3.9.1 and of 4.3.1, but for internal ones."""

OF_PRODUCERS = {
    "kafka.acks": "0",
    "kafka.batch.size": "1000",
    "kafka.buffer.memory": "100000",
    "kafka.compression.gzip.level": "9",
    "kafka.compression.type": "zstd",
    "kafka.compression.zstd.level": "3",
    "kafka.delivery.timeout.ms": "1000",
    "kafka.enable.idempotence": "true",
    "kafka.max.block.ms": "1000",
    "kafka.max.in.flight.requests.per.connection": "9",
    "kafka.max.request.size": "1000",
    "kafka.transaction.timeout.ms": "1000",
}
OF_CONSUMERS = {
    "kafka.check.crcs": "false",
    "kafka.fetch.max.bytes": "1000",
    "kafka.fetch.max.wait.ms": "100",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.max.partition.fetch.bytes": "1000",
}


def read(options: dict[str, str]) -> list[str]:
    """Return what is reported of a read with options."""
    reports: list[str] = []
    ReadOptions.parse({"subscribe": "t", **options}, "own:9092", report=reports.append)
    return reports


def written(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what is reported of a write with options, the first time in the process."""
    caplog.clear()
    WriteOptions.parse({"topic": "t", **options}, "own:9092")
    return caplog.messages


@pytest.mark.parametrize("name", [*OF_KAFKAS_CLIENTS.split(), "config.providers.file.class"])
def test_each_setting_of_kafkas_clients_is_known(name: str) -> None:
    """A job that moves over is told of each what becomes of it, and not that there is none of the name."""
    try:
        KafkaOptions({name: "1"}, None, report=lambda _: None)
    except DataSourceOptionError as error:
        assert "is not supported: " in str(error)


def test_settings_of_producers_have_no_effect_in_a_read_and_are_reported() -> None:
    """One map of options serves both sides, with what they contradict each other in; but not in silence."""
    assert read(OF_PRODUCERS) == [
        f"Option '{name}' has no effect here: it is for writes" for name in OF_PRODUCERS
    ]


def test_settings_of_consumers_have_no_effect_in_a_write_and_are_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As above."""
    assert written(OF_CONSUMERS, caplog) == [
        f"Option '{name}' has no effect here: it is for reads" for name in OF_CONSUMERS
    ]


def test_settings_that_others_make_idle_are_reported_in_a_write(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever sets a time-out for transactions takes his rows for written in one."""
    timeout = {"kafka.transaction.timeout.ms": "1000"}
    assert written(timeout, caplog) == []
    assert written({**timeout, "deliveryGuarantee": "atLeastOnce"}, caplog) == [
        "Option 'kafka.transaction.timeout.ms' has no effect here: the write has no transactions"
    ]
    levels = {"kafka.compression.zstd.level": "3", "kafka.compression.lz4.level": "9"}
    assert written({**levels, "kafka.compression.type": "zstd"}, caplog) == [
        "Option 'kafka.compression.lz4.level' has no effect here: compression.type is zstd"
    ]


@pytest.mark.parametrize("name", [*OF_PRODUCERS, *OF_CONSUMERS])
def test_malformed_setting_is_refused_on_either_side(name: str) -> None:
    """It is a mistake wherever it stands, and the other side is to find it no later."""
    with pytest.raises(DataSourceOptionError, match=f"'{name}' is 'banana'"):
        read({name: "banana"})
    for guarantee in ("exactlyOnce", "atLeastOnce"):
        with pytest.raises(DataSourceOptionError, match=f"'{name}' is 'banana'"):
            WriteOptions.parse({"topic": "t", "deliveryGuarantee": guarantee, name: "banana"}, "own:9092")


def test_config_providers_are_refused_with_the_reason() -> None:
    """A reference to a secret would be taken for the secret, and told to whoever is logged in to."""
    for name in ("config.providers", "config.providers.file.class"):
        with pytest.raises(DataSourceOptionError, match="values are taken literally"):
            read({f"kafka.{name}": "file"})
