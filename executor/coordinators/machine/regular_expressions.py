"""Regular expressions of clients: RE2's, whose matching is linear in the length of the text.

RE2 parses an expression in one call, during which nothing else runs in the process, and few characters can be
very expensive: 32,764 that repeat Unicode's letter classes take 2.6 s. So the costly parts of an expression
are bounded. Within the bounds parsing takes less than 50 ms; a list of a thousand names, which has no such
part, takes 3 ms.

RE2 is imported when a client brings an expression: most brokers never need it.
"""

import re
from collections.abc import Callable
from typing import Final

MAX_OPERATORS: Final = 512
"""Groups and repetitions."""
MAX_CLASSES: Final = 64
"""Unicode classes, as \\pL."""

_OPERATORS: Final = re.compile(r"[({?*+]")
_CLASSES: Final = re.compile(r"\\[pP]")
_MAX_BYTES: Final = 1 << 20
"""Memory limit of a compiled expression and of its matching."""


def compiled(regex: str) -> Callable[[str], object]:
    """Return a predicate for texts that match the expression entirely.

    >>> matches = compiled("a|b+")
    >>> [bool(matches(text)) for text in ("a", "bb", "ab")]
    [True, True, False]

    Raises:
        ValueError: RE2 rejects it, or it exceeds a bound.
    """
    import re2

    for pattern, most, what in (
        (_OPERATORS, MAX_OPERATORS, "groups and repetitions"),
        (_CLASSES, MAX_CLASSES, "Unicode classes"),
    ):
        if sum(1 for _ in pattern.finditer(regex)) > most:
            raise ValueError(f"it has more than {most} {what}")
    options = re2.Options()
    options.log_errors = False
    # Matching alone is an automaton's work; the contents of many groups would take minutes.
    options.never_capture = True
    options.max_mem = _MAX_BYTES
    try:
        return re2.compile(regex, options).fullmatch  # type: ignore[no-any-return]
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
