"""Configurations: a broker's and a topic's, properties files, listeners, rules for names in certificates.

The first byte says what it is.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from sparklog.node.acls.host import host_of
from sparklog.node.config import BrokerConfig
from sparklog.node.config.listeners import parse_bootstrap_servers, parse_listeners, parse_protocol_map
from sparklog.node.config.properties import read_properties
from sparklog.node.config.topic import checked_topic_config
from sparklog.node.metadata.topic_names import check_topic_name
from sparklog.node.security.tls.contexts import openssl_name
from sparklog.node.security.tls.principal import NoMatchingRuleError, PrincipalMapper
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of, text_of
from tests.fuzz.targets import Target
from tests.fuzz.targets.options import SECRET, is_secret

KINDS = (
    "broker",
    "topic",
    "properties",
    "protocols",
    "listeners",
    "servers",
    "rules",
    "suite",
    "name",
    "host",
)
_REFUSED = frozenset({ErrorCode.invalid_config, ErrorCode.invalid_topic_exception})
_BROKER = BrokerConfig.from_mapping({})


def target() -> Target:
    shared = Path("/dev/shm")
    file = tempfile.NamedTemporaryFile(prefix="fuzz", dir=shared if shared.is_dir() else None)  # noqa: SIM115

    def properties(text: str) -> None:
        Path(file.name).write_text(text, encoding="utf-8", errors="surrogatepass")
        read = read_properties(Path(file.name))
        expect(all(isinstance(value, str) for value in read.values()), "a value is no text")

    parsers: tuple[Callable[[str], object], ...] = (
        _broker,
        lambda text: checked_topic_config(_BROKER, _keys(text)),
        properties,
        parse_protocol_map,
        lambda text: parse_listeners("listeners", text.split(","), parse_protocol_map("A:SSL")),
        lambda text: parse_bootstrap_servers(text.split(","), ["PLAINTEXT", "SSL"]),
        _rules,
        openssl_name,
        check_topic_name,
        host_of,
    )

    def take(data: bytes) -> None:
        kind, rest = kind_of(data, len(parsers))
        try:
            parsers[kind](text_of(rest))
        except NoMatchingRuleError:
            pass
        except KafkaError as error:
            expect(error.error_code in _REFUSED, f"refused as {error.error_code.name}: {error}")
            secret = kind == 0 and is_secret(text_of(rest))
            expect(not secret or SECRET not in str(error), f"an error shows a password: {error}")

    return take


def _keys(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.split("\n"))


def _broker(text: str) -> None:
    keys = _keys(text)
    config = BrokerConfig.from_mapping(keys)
    expect(not is_secret(text) or SECRET not in repr(config), "a configuration shows a password")
    expect(config == BrokerConfig.from_mapping(keys), "read again it is another one")


def _rules(text: str) -> None:
    rules, _, name = text.partition("\n")
    PrincipalMapper(rules).name(name)
