"""A client's records of TLS 1.3 by hand: Python's `ssl` can't ask for new keys (KeyUpdate).

The keys are those that OpenSSL writes into a key log. Source: RFC 8446, 7.1 to 7.3 and 4.6.3.
"""

import hashlib
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SUITE = "TLS_AES_256_GCM_SHA384"
_KEY_BYTES, _IV_BYTES, _TAG_BYTES = 32, 12, 16
_HANDSHAKE, _APPLICATION_DATA = 22, 23
_KEY_UPDATE = bytes([24, 0, 0, 1, 0])
"""One that asks for none in return."""


class ClientRecords:
    """What a client sends behind its handshake, of which nothing was sent yet; in the suite `SUITE`."""

    def __init__(self, key_log: Path) -> None:
        lines = [line.split() for line in key_log.read_text().splitlines()]
        (secret,) = (line[2] for line in lines if line[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._follow(bytes.fromhex(secret))

    def key_update(self) -> bytes:
        """Return a record that says that the next ones have other keys."""
        record = self._record(_KEY_UPDATE, _HANDSHAKE)
        self._follow(_expanded(self._secret, b"traffic upd", hashlib.sha384().digest_size))
        return record

    def data(self, plain: bytes) -> bytes:
        """Return a record with some bytes."""
        return self._record(plain, _APPLICATION_DATA)

    def _follow(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(_expanded(secret, b"key", _KEY_BYTES))
        self._iv = _expanded(secret, b"iv", _IV_BYTES)
        self._sent = 0

    def _record(self, content: bytes, kind: int) -> bytes:
        inner = content + bytes([kind])
        header = struct.pack(">BHH", _APPLICATION_DATA, 0x0303, len(inner) + _TAG_BYTES)
        number = self._sent.to_bytes(_IV_BYTES, "big")
        nonce = bytes(a ^ b for a, b in zip(self._iv, number, strict=True))
        self._sent += 1
        return header + self._cipher.encrypt(nonce, inner, header)


def _expanded(secret: bytes, label: bytes, length: int) -> bytes:
    full = b"tls13 " + label
    info = struct.pack(">HB", length, len(full)) + full + b"\0"
    return HKDFExpand(SHA384(), length, info).derive(secret)
