"""Regular expressions of clients: RE2's, whose matching takes time in proportion to what it reads.

RE2 reads an expression in one go, during which nothing else runs in the process, and few characters can say
very much: 32,764 of them that name Unicode's letters over and over take it 2.6 s. So an expression is bounded
in what takes time to read. Within the bounds it takes less than 50 ms, and a list of a thousand names, which
has nothing of the kind, 3 ms.

RE2 is imported when somebody brings an expression: most brokers never need it.
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
"""What an expression may become, and what matching it may take."""


def compiled(regex: str) -> Callable[[str], object]:
    """Return what says whether all of a text matches.

    >>> matches = compiled("a|b+")
    >>> [bool(matches(text)) for text in ("a", "bb", "ab")]
    [True, True, False]

    Raises:
        ValueError: RE2 does not understand it, or it would take too long to.
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
    # Whether a name matches is an automaton's to say; what groups hold takes minutes where there are many.
    options.never_capture = True
    options.max_mem = _MAX_BYTES
    try:
        return re2.compile(regex, options).fullmatch  # type: ignore[no-any-return]
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from None
