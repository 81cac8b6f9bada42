"""Numbers in the format for people; None is a dash."""

from datetime import UTC, datetime

from sparklog.protocol.types import TimestampMs

NONE = "\N{EN DASH}"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def count(value: float | None) -> str:
    """Return a whole number.

    >>> count(1234567), count(None)
    ('1,234,567', '–')
    """
    return NONE if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return so many in a second.

    >>> rate(3.25), rate(12345.6)
    ('3.2/s', '12,346/s')
    """
    return NONE if value is None else f"{value:,.{0 if value >= 100 or not value else 1}f}/s"


def size(value: float | None) -> str:
    """Return an amount of bytes, with Spark's units.

    >>> size(512), size(1536), size(7 * 2**30)
    ('512 B', '1.5 KiB', '7.0 GiB')
    """
    if value is None:
        return NONE
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def size_rate(value: float | None) -> str:
    return NONE if value is None else f"{size(value)}/s"


def duration(value_ms: float | None) -> str:
    """Return a time.

    >>> duration(0.25), duration(42), duration(2_500), duration(90_000), duration(2 * 3_600_000)
    ('0.2 ms', '42 ms', '2.5 s', '1.5 min', '120 min')
    """
    if value_ms is None:
        return NONE
    if value_ms < 1_000:
        return f"{value_ms:.{0 if value_ms >= 10 or not value_ms else 1}f} ms"
    if value_ms < 60_000:
        return f"{value_ms / 1_000:.1f} s"
    return f"{value_ms / 60_000:.{1 if value_ms < 600_000 else 0}f} min"


def clock_time(at_ms: TimestampMs) -> str:
    """Return a moment, in UTC.

    >>> clock_time(1_700_000_000_000)
    '2023-11-14 22:13:20'
    """
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
