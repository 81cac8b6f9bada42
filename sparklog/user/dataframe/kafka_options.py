"""The `kafka.*` options: Kafka's client settings that are honoured, refused, or without effect here.

Every setting is in exactly one of these groups: honoured ones are parsed into the client's configuration;
settings that contradict the source are refused with the alternative; settings of Kafka's own clients without
a meaning here are reported and ignored; any other name is treated as a typing error and refused with the
nearest known name.

A consumer's settings are honoured in reads and a producer's in writes. One set of options for both is
allowed: the others are reported, and their values are checked all the same.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

from sparklog.node.endpoints import SecurityProtocol
from sparklog.node.security.sasl.mechanism import Login
from sparklog.node.security.session_access import PLAIN_ACCESS, SessionAccess
from sparklog.protocol.records.codecs import Codec
from sparklog.user.client.config import ClientConfig, FetchConfig, ProducerConfig, parse_bootstrap_servers
from sparklog.user.dataframe.application_cluster import ApplicationAddress
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.sasl_options import SASL_SETTINGS, sasl_login
from sparklog.user.dataframe.tls_options import TLS_SETTINGS, session_tls_settings, tls_settings

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"

_CLIENT_SETTINGS: Final = frozenset(
    {
        BOOTSTRAP_SERVERS,
        "client.id",
        "default.api.timeout.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
    }
)
_FETCH_SETTINGS: Final = frozenset(
    {
        "check.crcs",
        "client.rack",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
    }
)
_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_PRODUCER_SETTINGS: Final = frozenset(
    {
        "acks",
        "batch.size",
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "enable.idempotence",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        _TRANSACTION_TIMEOUT,
    }
)
_COMPRESSION_LEVELS: Final = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
"""Lowest and highest level of each codec that has levels."""
_HONOURED: Final = _CLIENT_SETTINGS | _FETCH_SETTINGS | _PRODUCER_SETTINGS | SASL_SETTINGS | TLS_SETTINGS

_READ_AS_BINARY: Final = (
    "the column is read as binary; use DataFrame operations on it, such as cast('string')"
)
_REFUSED: Final = {
    "auto.offset.reset": "instead set the source option 'startingOffsets' or 'startingTimestamp' to say "
    "where to start; every query chooses its own offsets",
    "config.providers": "values are taken literally, and no provider resolves '${provider:path:key}'; "
    "read secrets in the job, and give them as options",
    "enable.auto.commit": "a query chooses its own offsets and commits none",
    "interceptor.classes": "there is no JVM client to intercept; transform the DataFrame instead",
    "key.deserializer": _READ_AS_BINARY,
    "value.deserializer": _READ_AS_BINARY,
    "key.serializer": "keys are written as they are; make the key column a string or binary",
    "value.serializer": "values are written as they are; make the value column a string or binary",
    "partitioner.class": "rows are partitioned as by Kafka's default partitioner; to choose yourself, add a "
    "column 'partition' of type int",
    "ssl.engine.factory.class": "TLS is OpenSSL's here; give stores with 'kafka.ssl.keystore.location'",
    "transactional.id": "each task has its own transactional ids, so that no other task ends its "
    "transactions; to leave out a repeated write, set 'txnAppId' and 'txnVersion'",
}

_NAMES_WITHOUT_EFFECT: Final = """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter client.dns.lookup
connections.max.idle.ms enable.metrics.push exclude.internal.topics fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms linger.ms max.poll.interval.ms
max.poll.records metadata.max.age.ms metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metric.reporters metrics.num.samples metrics.recording.level
metrics.sample.window.ms partition.assignment.strategy partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms
reconnect.backoff.ms retries sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name security.providers send.buffer.bytes
session.timeout.ms share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.keymanager.algorithm ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm transaction.two.phase.commit.enable
"""
_WITHOUT_EFFECT: Final = frozenset(_NAMES_WITHOUT_EFFECT.split())

_SASL_HERE: Final = (
    f"clients log in by PLAIN, SCRAM or OAUTHBEARER, with {', '.join(sorted(SASL_SETTINGS))}; GSSAPI and "
    "delegation tokens are not supported"
)
_OF_CONFIG_PROVIDERS: Final = "config.providers."
_MAX_INT: Final = 2**31 - 1
_MAX_IN_FLIGHT: Final = 5


class KafkaOptions:
    """Kafka's client settings in the options, without their `kafka.` prefix."""

    def __init__(
        self,
        settings: Mapping[str, str],
        default_bootstrap_servers: str | None,
        *,
        report: Callable[[str], None],
    ) -> None:
        """Check every name, and report those without effect; the methods parse the values.

        Raises:
            DataSourceOptionError: a setting is refused or unknown.
        """
        self._settings = {name.lower(): value for name, value in settings.items()}
        self._default_bootstrap_servers = default_bootstrap_servers
        self._report = report
        for name in sorted(self._settings):
            _check_name(name, report)

    def client(self, *, unknown_topic_timeout_ms: int | None = None) -> ClientConfig:
        """Return the client's configuration: for the cluster in the options, else the session's own.

        Raises:
            DataSourceOptionError: there is neither, or a value is malformed.
        """
        default = self._default_bootstrap_servers
        servers = self._settings.get(BOOTSTRAP_SERVERS, default)
        # Also if the options name it: its end is then noticed at once, and not after a time-out.
        of_this_application = isinstance(default, ApplicationAddress) and servers == default
        if of_this_application and not servers:
            raise DataSourceOptionError(
                "this application's cluster was stopped: sparklog.start(spark) starts one, or name another "
                "with the option 'kafka.bootstrap.servers'"
            )
        if servers is None:
            raise DataSourceOptionError(
                "Option 'kafka.bootstrap.servers' must be specified: this session runs no cluster of its "
                "own; sparklog.start(spark) starts one, after which the option may be left out"
            )
        try:
            bootstrap_servers = parse_bootstrap_servers(servers)
        except ValueError as error:
            raise DataSourceOptionError(
                f"Option 'kafka.bootstrap.servers' is '{servers}': {error}"
            ) from error
        access = default.access if of_this_application and isinstance(default, ApplicationAddress) else None
        application_access = PLAIN_ACCESS if access is None else access
        protocol = self._settings.get("security.protocol", application_access.protocol).strip().upper()
        if protocol not in SecurityProtocol.__members__:
            raise DataSourceOptionError(
                f"Option 'kafka.security.protocol' is '{protocol}'; it must be one of "
                f"{', '.join(SecurityProtocol.__members__)}"
            )
        defaults = ClientConfig(bootstrap_servers=bootstrap_servers)
        return ClientConfig(
            bootstrap_servers=bootstrap_servers,
            of_this_application=of_this_application,
            client_id=self._settings.get("client.id", defaults.client_id),
            request_timeout_ms=self._integer("request.timeout.ms", defaults.request_timeout_ms, 1),
            api_timeout_ms=self._integer("default.api.timeout.ms", defaults.api_timeout_ms, 1),
            unknown_topic_timeout_ms=(
                defaults.unknown_topic_timeout_ms
                if unknown_topic_timeout_ms is None
                else unknown_topic_timeout_ms
            ),
            tls=tls_settings(self._settings, session_tls_settings(application_access))
            if protocol.endswith("SSL")
            else None,
            login=self._login(protocol, application_access, of_this_application=of_this_application),
            retry_backoff_ms=self._integer("retry.backoff.ms", defaults.retry_backoff_ms, 1),
            retry_backoff_max_ms=self._integer("retry.backoff.max.ms", defaults.retry_backoff_max_ms, 1),
        )

    def _login(
        self, protocol: str, application_access: SessionAccess, *, of_this_application: bool
    ) -> Login | None:
        """Return the client's login; the application's own sessions may use that of `application_access`."""
        is_sasl = protocol.startswith("SASL_")
        unheard = sorted(SASL_SETTINGS.intersection(self._settings))
        if of_this_application and unheard and not is_sasl:
            # Kafka's clients ignore them without SASL. Here the query would run as the application itself.
            raise DataSourceOptionError(
                f"Option 'kafka.{unheard[0]}' identifies the query, but 'kafka.security.protocol' is "
                f"{protocol}, which has no login: leave the former out, or name a SASL listener with "
                "'kafka.bootstrap.servers' and the latter"
            )
        own_settings = SASL_SETTINGS if is_sasl else TLS_SETTINGS
        if (
            protocol == application_access.protocol
            and application_access.login is not None
            and own_settings.isdisjoint(self._settings)
        ):
            return application_access.login
        return sasl_login(self._settings) if is_sasl else None

    def fetch(self, *, poll_timeout_ms: int | None = None) -> FetchConfig:
        """Return the fetch configuration; report a producer's settings as without effect.

        Raises:
            DataSourceOptionError: a value is malformed.
        """
        self._producer()
        self._transaction_timeout_ms()
        self._report_without_effect(_PRODUCER_SETTINGS, "it is for writes")
        return self._fetch(poll_timeout_ms)

    def _fetch(self, poll_timeout_ms: int | None) -> FetchConfig:
        defaults = FetchConfig()
        isolation = self._choice("isolation.level", "read_committed", ("read_uncommitted", "read_committed"))
        return FetchConfig(
            max_bytes=self._integer("fetch.max.bytes", defaults.max_bytes, 1),
            max_partition_bytes=self._integer("max.partition.fetch.bytes", defaults.max_partition_bytes, 1),
            max_wait_ms=self._integer("fetch.max.wait.ms", defaults.max_wait_ms, 0),
            poll_timeout_ms=defaults.poll_timeout_ms if poll_timeout_ms is None else poll_timeout_ms,
            check_crcs=boolean("kafka.check.crcs", self._settings.get("check.crcs", "true")),
            read_committed=isolation == "read_committed",
            client_rack=self._settings.get("client.rack") or None,
        )

    def producer(self) -> ProducerConfig:
        """Return the producer configuration; report a consumer's settings as without effect.

        Raises:
            DataSourceOptionError: a value is malformed, or idempotence is requested with settings that
                contradict it.
        """
        self._fetch(None)
        self._report_without_effect(_FETCH_SETTINGS, "it is for reads")
        config = self._producer()
        other_levels = [_level_of(each) for each in _COMPRESSION_LEVELS if each is not config.codec]
        self._report_without_effect(other_levels, f"compression.type is {config.codec.name.lower()}")
        contradiction = _contradiction_of_idempotence(config.acks, config.max_in_flight)
        if config.idempotent and contradiction is not None:
            raise DataSourceOptionError(f"Option 'kafka.enable.idempotence' is true, but {contradiction}")
        return config

    def _producer(self) -> ProducerConfig:
        defaults = ProducerConfig()
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}[self._choice("acks", "all", ("all", "-1", "0", "1"))]
        in_flight = self._integer("max.in.flight.requests.per.connection", defaults.max_in_flight, 1)
        codec = Codec[
            self._choice("compression.type", "none", tuple(member.name.lower() for member in Codec)).upper()
        ]
        levels = {
            each: self._integer(_level_of(each), 0, low, high)
            for each, (low, high) in _COMPRESSION_LEVELS.items()
            if _level_of(each) in self._settings
        }
        max_request_bytes = self._integer("max.request.size", defaults.max_request_bytes, 1)
        return ProducerConfig(
            acks=acks,
            idempotent=self._idempotent(acks, in_flight),
            batch_size_bytes=min(
                self._integer("batch.size", defaults.batch_size_bytes, 0), max_request_bytes
            ),
            max_request_bytes=max_request_bytes,
            codec=codec,
            compression_level=levels.get(codec),
            max_in_flight=in_flight,
            max_block_ms=self._integer("max.block.ms", defaults.max_block_ms, 0),
            delivery_timeout_ms=self._integer("delivery.timeout.ms", defaults.delivery_timeout_ms, 1),
            buffer_bytes=self._integer("buffer.memory", defaults.buffer_bytes, 0, 2**63 - 1),
        )

    def transaction_timeout_ms(self, *, has_transactions: bool) -> int | None:
        """Return the time-out of a write's transactions; None if it is not given or the write has none.

        Raises:
            DataSourceOptionError: the value is malformed.
        """
        timeout_ms = self._transaction_timeout_ms()
        if has_transactions:
            return timeout_ms
        self._report_without_effect((_TRANSACTION_TIMEOUT,), "the write has no transactions")
        return None

    def _transaction_timeout_ms(self) -> int | None:
        return self._integer(_TRANSACTION_TIMEOUT, 1, 1) if _TRANSACTION_TIMEOUT in self._settings else None

    def _idempotent(self, acks: int, in_flight: int) -> bool:
        """Return whether the producer is idempotent: by default, unless a setting contradicts it."""
        asked_for = self._settings.get("enable.idempotence")
        if asked_for is None:
            return _contradiction_of_idempotence(acks, in_flight) is None
        return boolean("kafka.enable.idempotence", asked_for)

    def _report_without_effect(self, names: Iterable[str], why: str) -> None:
        for name in sorted(self._settings.keys() & set(names)):
            self._report(f"Option 'kafka.{name}' has no effect here: {why}")

    def _integer(self, name: str, default: int, low: int, high: int = _MAX_INT) -> int:
        text = self._settings.get(name)
        return default if text is None else integer(f"kafka.{name}", text, low, high)

    def _choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self._settings.get(name, default).strip().lower()
        if value not in choices:
            raise DataSourceOptionError(
                f"Option 'kafka.{name}' is '{self._settings[name]}'; it must be one of {', '.join(choices)}"
            )
        return value


def integer(option: str, text: str, low: int, high: int = 2**63 - 1) -> int:
    """Parse an option's whole number.

    Raises:
        DataSourceOptionError: it is not a whole number, or not from `low` to `high`.
    """
    try:
        number = int(text.strip())
    except ValueError as error:
        raise DataSourceOptionError(f"Option '{option}' is '{text}'; it must be a whole number") from error
    if not low <= number <= high:
        bounds = "positive" if (low, high) == (1, 2**63 - 1) else f"from {low} to {high}"
        raise DataSourceOptionError(f"Option '{option}' is {number}; {option} must be {bounds}")
    return number


def boolean(option: str, text: str) -> bool:
    """Parse an option's truth value.

    Raises:
        DataSourceOptionError: it is neither `true` nor `false`.
    """
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise DataSourceOptionError(f"Option '{option}' is '{text}'; it must be true or false")


def _level_of(codec: Codec) -> str:
    return f"compression.{codec.name.lower()}.level"


def _contradiction_of_idempotence(acks: int, in_flight: int) -> str | None:
    if acks != -1:
        return f"kafka.acks={acks}; it needs acks=all"
    if in_flight > _MAX_IN_FLIGHT:
        return (
            f"kafka.max.in.flight.requests.per.connection={in_flight}; a leader remembers {_MAX_IN_FLIGHT} "
            "batches"
        )
    return None


def _check_name(name: str, report: Callable[[str], None]) -> None:
    if name in _HONOURED:
        return
    if name in _REFUSED:
        _refuse(name, _REFUSED[name])
    if name.startswith(_OF_CONFIG_PROVIDERS):
        _refuse(name, _REFUSED["config.providers"])
    if name in _WITHOUT_EFFECT:
        report(f"Option 'kafka.{name}' has no effect: the sparklog source has nothing to apply it to")
        return
    if name.startswith("sasl."):
        _refuse(name, _SASL_HERE)
    nearest = difflib.get_close_matches(name, _HONOURED | _WITHOUT_EFFECT, n=1, cutoff=0.7)
    hint = f"did you mean 'kafka.{nearest[0]}'?" if nearest else f"known are {', '.join(sorted(_HONOURED))}"
    raise DataSourceOptionError(f"Kafka option '{name}' is unknown; {hint}")


def _refuse(name: str, alternative: str) -> NoReturn:
    raise DataSourceOptionError(f"Kafka option '{name}' is not supported: {alternative}")
