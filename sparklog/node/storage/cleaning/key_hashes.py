"""Hashes of 128 bits that stand for record keys, computed for many keys at once.

Keys up to 128 bytes: four independent functions of 32 bits, each (m_0 + m_1 length + sum of m_i word_i mod
2^64) div 2^32 over the key's 32-bit words, which is strongly universal (Lemire and Kaser, "Strongly universal
string hashing is fast"): two different keys collide with probability 2^-128, even if an adversary chose them,
since the multipliers are random for each cleaning and secret. Longer keys: keyed BLAKE2b of 16 bytes, which
costs no more per byte.
"""

import os
from hashlib import blake2b
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sparklog.protocol.records.varint_columns import Bytes, Int64s

UInt64s: TypeAlias = npt.NDArray[np.uint64]

_WIDTHS: Final = (8, 16, 32, 64, 128)
_FUNCTIONS: Final = 4
_UPPER: Final = np.uint64(0xFFFFFFFF00000000)


class KeyHashes:
    def __init__(self) -> None:
        count = (2 + _WIDTHS[-1] // 4) * _FUNCTIONS
        multipliers = np.frombuffer(os.urandom(8 * count), dtype=np.uint64).reshape(-1, _FUNCTIONS)
        self._constant, self._of_length, self._of_words = multipliers[0], multipliers[1], multipliers[2:]
        self._secret = os.urandom(32)

    def of(self, data: Bytes, positions: Int64s, lengths: Int64s) -> tuple[UInt64s, UInt64s]:
        """Return the halves of the hash of each key data[position : position + length].

        Positions must rise, lengths must not be negative.
        """
        high = np.empty(len(positions), dtype=np.uint64)
        low = np.empty(len(positions), dtype=np.uint64)
        if not len(positions):
            return high, low
        shorter = -1
        longest = int(lengths.max())
        for width in _WIDTHS:
            if shorter < longest:
                rows = np.flatnonzero((lengths > shorter) & (lengths <= width))
                if len(rows):
                    high[rows], low[rows] = self._short(data, positions[rows], lengths[rows], width)
            shorter = width
        if longest > shorter:
            view = data.data
            for row in np.flatnonzero(lengths > shorter).tolist():
                start = int(positions[row])
                digest = blake2b(view[start : start + int(lengths[row])], digest_size=16, key=self._secret)
                high[row], low[row] = np.frombuffer(digest.digest(), dtype=np.uint64)
        return high, low

    def _short(self, data: Bytes, positions: Int64s, lengths: Int64s, width: int) -> tuple[UInt64s, UInt64s]:
        keys = _gathered(data, positions, width)
        keys *= np.arange(width) < lengths[:, None]
        words = keys.view(np.uint32).astype(np.uint64)
        hashes = words @ self._of_words[: width // 4]
        hashes += self._constant
        hashes += lengths.astype(np.uint64)[:, None] * self._of_length
        hashes &= _UPPER
        return hashes[:, 0] | hashes[:, 1] >> np.uint64(32), hashes[:, 2] | hashes[:, 3] >> np.uint64(32)


def _gathered(data: Bytes, positions: Int64s, width: int) -> Bytes:
    """Return `width` bytes from each position on, with zeros beyond the end of `data`."""
    inside = int(np.searchsorted(positions, len(data) - width, side="right"))
    found = np.empty((len(positions), width), dtype=np.uint8)
    if inside:
        windows = np.ndarray(len(data) - width + 1, dtype=f"V{width}", buffer=data, strides=(1,))
        found[:inside] = windows[positions[:inside]].view(np.uint8).reshape(-1, width)
    if inside < len(positions):
        start = int(positions[inside])
        rest = np.zeros(len(data) - start + width, dtype=np.uint8)
        rest[: len(data) - start] = data[start:]
        windows = np.ndarray(len(rest) - width + 1, dtype=f"V{width}", buffer=rest, strides=(1,))
        found[inside:] = windows[positions[inside:] - start].view(np.uint8).reshape(-1, width)
    return found
