"""Errors of catalogues and their libraries, without the secrets of the configuration.

pyiceberg, SQLAlchemy and requests put addresses and answers into their messages, and with these passwords,
tokens and signatures. The messages go to the log and to the Log tab.
"""

import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

_HIDDEN: Final = "[hidden]"
_SHORTEST: Final = 4
"""A shorter secret would be found in any text."""
_SECRET_KEY: Final = re.compile(
    r"secret|password|token|credential|key|auth|sas|header|signature|connection.string", re.IGNORECASE
)
_USER_INFO: Final = re.compile(r"([a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s@]*@", re.IGNORECASE)
_QUERY: Final = re.compile(r"([a-z][a-z0-9+.-]*://[^\s?]*)\?[^\s'\")]*", re.IGNORECASE)
_SCHEME: Final = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]+", re.IGNORECASE)
_ASSIGNED: Final = re.compile(
    r"((?:token|password|secret|credential|signature|account.?key|access.?key|\bsig)[\"']?\s*[:=]\s*[\"']?)"
    r"[^\s\"',&)}]+",
    re.IGNORECASE,
)


class Redaction:
    def __init__(self, *properties: Mapping[str, str]) -> None:
        secrets = {each for some in properties for each in _secrets(some.items()) if len(each) >= _SHORTEST}
        # The longest first: a secret may be a part of another.
        self._secrets: Final = sorted(secrets, key=lambda each: (-len(each), each))

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        text = _QUERY.sub(r"\1", _USER_INFO.sub(rf"\1:{_HIDDEN}@", text))
        return _ASSIGNED.sub(rf"\1{_HIDDEN}", _SCHEME.sub(rf"\1 {_HIDDEN}", text))

    def trace(self, error: BaseException) -> str:
        return self("".join(traceback.format_exception(error)))


def _secrets(properties: Iterable[tuple[str, str]]) -> Iterator[str]:
    for key, value in properties:
        if _SECRET_KEY.search(key):
            yield value
            yield value.rpartition(":")[2]  # of OAuth's id:secret
            # Of a connection string.
            parts = (part.partition("=") for part in value.split(";"))
            yield from _secrets((name, part) for name, _, part in parts if part)
        password = _password(value)
        if password:
            yield from (password, unquote(password))


def _password(value: str) -> str | None:
    try:
        return urlsplit(value).password
    except ValueError:
        return None
