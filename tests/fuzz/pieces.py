"""Parts of an input, for targets that take several: each ends with a byte that stands in none of them."""

from collections.abc import Iterable

_END = b"\xff"


def parts(data: bytes, at_most: int) -> list[bytes]:
    """Return the parts; the last one has the rest."""
    return data.split(_END, at_most - 1)


def joined(pieces: Iterable[bytes]) -> bytes:
    """Return the input that has these parts."""
    return _END.join(pieces)


def kind_of(data: bytes, kinds: int) -> tuple[int, bytes]:
    """Return what the first byte says, and the rest."""
    return (data[0] % kinds, data[1:]) if data else (0, b"")


def text_of(data: bytes) -> str:
    """Return text; what is no UTF-8 is text all the same."""
    return data.decode("utf-8", "replace")
