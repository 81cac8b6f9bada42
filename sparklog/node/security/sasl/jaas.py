"""Kafka's `sasl.jaas.config`: one login module with its options, in the syntax of JAAS files.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="s3cret";

Words, quoted strings with Java's escapes, comments of both kinds. No error shows any of the text, since it
holds secrets. Source: Kafka's JaasConfig, which reads it with Java's StreamTokenizer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""
    (?P<blank> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<quoted> "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
    | (?P<word> [^\s"'=;]+ )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class JaasError(ValueError):
    """A malformed text; the message says where, and shows nothing of it."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module and its options: users, passwords, tokens."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def login_module(text: str) -> LoginModule:
    """Return the login module of a text.

    >>> login_module('Plain required username="ann" password="a b";').options["password"]
    'a b'

    Raises:
        JaasError: the text is not exactly one login module.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3:
        raise JaasError('expected: module required option="value" ...;')
    (kind, name), (flag_kind, flag), *rest = tokens
    if kind != "word":
        raise JaasError("it does not begin with the name of a login module")
    if flag_kind != "word" or flag.lower() not in _FLAGS:
        raise JaasError(f"after the login module one of {', '.join(_FLAGS)} is expected")
    options: dict[str, str] = {}
    while rest and rest[0] != ("sign", ";"):
        if len(rest) < 3 or rest[0][0] != "word" or rest[1] != ("sign", "=") or rest[2][0] == "sign":
            raise JaasError(f'option {len(options) + 1} is not of the form name="value"')
        options[rest[0][1]] = rest[2][1]
        del rest[:3]
    if not rest:
        raise JaasError("it does not end with a semicolon")
    if len(rest) > 1:
        raise JaasError("text follows the semicolon: only one login module is allowed")
    return LoginModule(name, options)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise JaasError(f"character {position + 1} begins a string that does not end")
        position = token.end()
        kind, value = str(token.lastgroup), token[0]
        if kind == "quoted":
            value = _ESCAPE.sub(_unescaped, value[1:-1])
        if kind != "blank":
            yield kind, value


def _unescaped(escape: re.Match[str]) -> str:
    escaped = escape[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped)
