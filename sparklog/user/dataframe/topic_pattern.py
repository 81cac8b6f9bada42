r"""Regular expressions of topic names in Java's syntax, as in Spark's Kafka connector.

There is no JVM where Spark creates Python data sources. The package `regex` supports features of Java's
patterns that Python's `re` lacks (`[a-z&&[^x]]`, `\p{Alpha}`, flags in the middle); others are translated
here.
"""

from typing import TYPE_CHECKING, Final

from sparklog.user.dataframe.errors import DataSourceOptionError

if TYPE_CHECKING:
    import regex

_ESCAPES: Final = {"z": r"\Z", "k": r"\g", "h": r"[\t ]", "e": r"\x1b"}
"""Escapes of Java that `regex` writes differently."""


def compile_java_pattern(option: str, pattern: str) -> "regex.Pattern[str]":
    r"""Return the compiled pattern, to search in a name.

    >>> bool(compile_java_pattern("subscribePattern", r"\Qorders.\E\p{Digit}++").search("orders.12"))
    True

    Raises:
        DataSourceOptionError: it is not a pattern, or one that only Java understands.
    """
    import regex  # a twentieth of a second: not for every task of every read

    try:
        return regex.compile(_translated(pattern), regex.VERSION1)
    except regex.error as error:
        raise DataSourceOptionError(
            f"Option '{option}' is '{pattern}', which is not a regular expression here: {error}. Java's "
            "patterns are supported, except the flags d and U and classes such as \\p{javaLowerCase}; or "
            "name the topics with 'subscribe'"
        ) from error


def _translated(pattern: str) -> str:
    parts = []
    position = 0
    while position < len(pattern):
        if pattern[position] != "\\":
            parts.append(pattern[position])
            position += 1
            continue
        escaped = pattern[position + 1 : position + 2]
        position += 2
        if escaped == "Q":  # up to \E, or the end, nothing means anything but itself
            end = pattern.find(r"\E", position)
            quoted = pattern[position:] if end < 0 else pattern[position:end]
            parts += [each if each.isalnum() else f"\\{each}" for each in quoted]
            position = len(pattern) if end < 0 else end + 2
        else:
            parts.append(_ESCAPES.get(escaped, f"\\{escaped}"))
    return "".join(parts)
