"""The last offset of every key in a part of the log, in a table of fixed size.

An open-addressed table of 24 bytes a slot (128-bit hash of the key, offset), probed for many keys at once;
two keys never share a slot. Rule kept: the table takes no more than `log.cleaner.dedupe.buffer.size`; the
next pass cleans the keys that do not fit.
"""

from typing import Final

import numpy as np

from sparklog.node.storage.cleaning.key_hashes import UInt64s
from sparklog.protocol.records.varint_columns import Int64s

SLOT_BYTES: Final = 24


class OffsetMap:
    def __init__(self, max_bytes: int, load_factor: float, most_keys: int) -> None:
        """`most_keys` is the largest possible number of keys: the table need not be larger than that.

        Raises:
            ValueError: there is no room for a single key.
        """
        if not load_factor > 0:
            raise ValueError(
                f"log.cleaner.io.buffer.load.factor is {load_factor}, which leaves no room for a key"
            )
        slots = min(max_bytes // SLOT_BYTES, int(most_keys / min(load_factor, 1.0)) + 3)
        self._slots = _prime_at_most(slots)
        # A search ends at a free slot, so one must remain for any load factor.
        self._capacity = min(int(self._slots * load_factor), self._slots - 1)
        if self._capacity < 1:
            raise ValueError(
                f"{max_bytes} bytes have no room for one key: raise log.cleaner.dedupe.buffer.size or lower "
                "log.cleaner.threads"
            )
        self._high = np.zeros(self._slots, dtype=np.uint64)
        self._low = np.zeros(self._slots, dtype=np.uint64)
        self._next_offsets = np.zeros(self._slots, dtype=np.int64)
        """Offset plus one; 0 in a free slot."""
        self.count = 0

    def put(self, high: UInt64s, low: UInt64s, offsets: Int64s) -> int:
        """Add keys at rising offsets, above all earlier ones; return the number of rows that fitted."""
        taken = 0
        while taken < len(offsets):
            end = len(offsets)
            room = self._capacity - self.count
            if room < end - taken:
                # Known keys take no room.
                is_new = self.get(high[taken:], low[taken:]) < 0
                end = taken + int(np.searchsorted(np.cumsum(is_new), room, side="right"))
                if end == taken:
                    break
            self._put(high[taken:end], low[taken:end], offsets[taken:end])
            taken = end
        return taken

    def _put(self, high: UInt64s, low: UInt64s, offsets: Int64s) -> None:
        next_offsets = offsets + 1
        slots, steps = self._first_slots(high, low)
        while len(slots):
            known = self._next_offsets[slots]
            free = known == 0
            # If several rows claim a slot, the last one gets it, in all three columns.
            claimed = slots[free]
            self._high[claimed] = high[free]
            self._low[claimed] = low[free]
            self._next_offsets[claimed] = next_offsets[free]
            self.count += int(np.count_nonzero(self._next_offsets[claimed] == next_offsets[free]))
            here = (self._high[slots] == high) & (self._low[slots] == low)
            # Rows rise by offset, so the last one of a key wins here too.
            self._next_offsets[slots[here]] = next_offsets[here]
            left = ~here
            high, low, next_offsets, steps = high[left], low[left], next_offsets[left], steps[left]
            slots = (slots[left] + steps) % self._slots

    def get(self, high: UInt64s, low: UInt64s) -> Int64s:
        """Return the offset of each key; -1 for an unknown one."""
        found = np.full(len(high), -1, dtype=np.int64)
        rows = np.arange(len(high))
        slots, steps = self._first_slots(high, low)
        while len(rows):
            next_offsets = self._next_offsets[slots]
            here = (self._high[slots] == high) & (self._low[slots] == low) & (next_offsets != 0)
            found[rows[here]] = next_offsets[here] - 1
            left = ~here & (next_offsets != 0)
            rows, high, low, steps = rows[left], high[left], low[left], steps[left]
            slots = (slots[left] + steps) % self._slots
        return found

    def _first_slots(self, high: UInt64s, low: UInt64s) -> tuple[Int64s, Int64s]:
        slots = (high % np.uint64(self._slots)).astype(np.int64)
        steps = (low % np.uint64(max(self._slots - 1, 1))).astype(np.int64) + 1
        return slots, steps


def _prime_at_most(number: int) -> int:
    """Return the largest prime up to `number`: with it every step width visits all slots.

    >>> _prime_at_most(100), _prime_at_most(2), _prime_at_most(1)
    (97, 2, 1)
    """
    while number > 3 and any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
