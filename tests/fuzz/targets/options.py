"""The options of DataFrames, and what stands in them: JSON of offsets, login modules, patterns, addresses.

The first byte says what it is. Options are lines, `name=value`, since Spark gives them as texts.
"""

from collections.abc import Callable

from sparklog.node.security.sasl.jaas import JaasError, login_module
from sparklog.user.client.config import parse_bootstrap_servers
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.offset_limits import (
    parse_offsets,
    parse_partitions,
    parse_timestamps,
    timestamp_ms,
)
from sparklog.user.dataframe.options import (
    ReadOptions,
    StreamReadOptions,
    WriteOptions,
    read_options_of_either_kind,
)
from sparklog.user.dataframe.topic_pattern import compile_java_pattern
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of, text_of
from tests.fuzz.targets import Target

SECRET = "V3ry.S3cret"
"""A password that no error may show; in the seeds."""


def target() -> Target:
    def take(data: bytes) -> None:
        kind, rest = kind_of(data, len(_PARSERS))
        text = text_of(rest)
        try:
            _PARSERS[kind](text)
        except (DataSourceOptionError, JaasError) as error:
            secret = kind == 3 or (kind < 3 and is_secret(text))
            expect(not secret or SECRET not in str(error), f"an error shows a password: {error}")
        except ValueError:
            if KINDS[kind] != "servers":
                raise

    return take


def _options(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.split("\n"))


def is_secret(text: str) -> bool:
    """Whether the password stands nowhere in options or keys but where a password may stand."""
    return not any(
        SECRET in line and not line.partition("=")[0].strip().lower().endswith(("jaas.config", "password"))
        for line in text.split("\n")
    )


def _silently(_: str) -> None: ...


def _read(text: str) -> None:
    options = _options(text)
    read = ReadOptions.parse(options, "h:1", report=_silently)
    expect(read == ReadOptions.parse(options, "h:1", report=_silently), "parsed again it is another one")
    read_options_of_either_kind(options, "h:1")
    expect(not is_secret(text) or SECRET not in repr(read), "options show a password")


def _stream(text: str) -> None:
    options = _options(text)
    stream = StreamReadOptions.parse(options, None, report=_silently)
    expect(not is_secret(text) or SECRET not in repr(stream), "options show a password")
    read_options_of_either_kind(options, None)


def _write(text: str) -> None:
    written = WriteOptions.parse(_options(text), "h:1")
    expect(not is_secret(text) or SECRET not in repr(written), "options show a password")


def _login(text: str) -> None:
    module = login_module(text)
    again = (
        module.name
        + " required "
        + "".join(f' {name}="{_escaped(value)}"' for name, value in module.options.items())
    )
    expect(login_module(again + ";") == module, "a login module is read to another")


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _pattern(text: str) -> None:
    compile_java_pattern("subscribePattern", text)


_PARSERS: tuple[Callable[[str], object], ...] = (
    _read,
    _stream,
    _write,
    _login,
    lambda text: parse_partitions("assign", text),
    lambda text: parse_offsets("startingOffsets", text),
    lambda text: parse_timestamps("startingOffsetsByTimestamp", text),
    lambda text: timestamp_ms("startingTimestamp", text),
    _pattern,
    parse_bootstrap_servers,
)
KINDS = (
    "read",
    "stream",
    "write",
    "login",
    "assign",
    "offsets",
    "timestamps",
    "timestamp",
    "pattern",
    "servers",
)
