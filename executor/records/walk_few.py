"""A few records of any sizes, read by a loop that knows what to expect, for which columns are not worth it.

Lengths, timestamps and offsets are expected to have one or two bytes, and offsets to go on one by one. For
other records, good or bad ones, the answer is None: `walk` reads them with all that is allowed, or names the
error. Their decoding stands where it is needed, again and again: a call for each field takes longer than the
field.
"""

from collections.abc import Sequence
from typing import NamedTuple


class StretchOfRecords(NamedTuple):
    """The fields of valid records that a walk needs."""

    lowest_delta: int
    highest_delta: int
    has_null_key: bool
    header_count: int
    """How many headers they have together; they were not looked at if these are too many."""


def read_few(data: bytes, starts: Sequence[int], end: int, first_index: int) -> StretchOfRecords | None:
    """Read the records that start at `starts`, the last of which ends at `end`."""
    lowest = highest = None
    has_null_key = False
    header_count = 0
    offset = 2 * first_index
    next_start = iter(starts)
    next(next_start, end)
    try:
        for start in starts:
            raw = data[start]  # the length, which has led to the next record if it is not below 0
            at = start + 2  # over attributes
            if raw > 0x7F:
                if data[start + 1] > 0x7F:
                    return None
                at += 1
            if raw & 1:
                return None
            raw = data[at]  # the timestamp delta
            at += 1
            if raw > 0x7F:
                if (second := data[at]) > 0x7F:
                    return None
                raw = raw & 0x7F | second << 7
                at += 1
            delta = raw >> 1 ^ -(raw & 1)
            if lowest is None or highest is None:
                lowest = highest = delta
            elif delta > highest:
                highest = delta
            elif delta < lowest:
                lowest = delta
            raw = data[at]
            at += 1
            if raw > 0x7F:
                if (second := data[at]) > 0x7F:
                    return None
                raw = raw & 0x7F | second << 7
                at += 1
            if raw != offset:
                return None
            offset += 2
            raw = data[at]  # the key's length
            at += 1
            if raw == 1:
                has_null_key = True
            else:
                if raw > 0x7F:
                    if (second := data[at]) > 0x7F:
                        return None
                    raw = raw & 0x7F | second << 7
                    at += 1
                if raw & 1:
                    return None
                at += raw >> 1
            raw = data[at]  # the value's
            at += 1
            if raw != 1:
                if raw > 0x7F:
                    if (second := data[at]) > 0x7F:
                        return None
                    raw = raw & 0x7F | second << 7
                    at += 1
                if raw & 1:
                    return None
                at += raw >> 1
            count = data[at]  # twice the number of headers
            at += 1
            if count:
                if count & 1 or count > 0x7F:
                    return None
                header_count += count >> 1
                for _ in range(count >> 1):
                    raw = data[at]  # the length of its key
                    if raw & 1 or raw > 0x7F:
                        return None
                    at += 1 + (raw >> 1)
                    raw = data[at]
                    at += 1
                    if raw != 1:
                        if raw > 0x7F:
                            if (second := data[at]) > 0x7F:
                                return None
                            raw = raw & 0x7F | second << 7
                            at += 1
                        if raw & 1:
                            return None
                        at += raw >> 1
            if at != next(next_start, end):
                return None
    except IndexError:
        return None
    if lowest is None or highest is None:
        return None
    return StretchOfRecords(lowest, highest, has_null_key, header_count)
