"""The public keys of an identity provider, from a JSON Web Key Set (RFC 7517).

Rule kept: the type of a key determines its algorithms, never the token. Symmetric keys are left out, so that
a public key can never pass for a shared secret; so are short keys, those of an unknown type, and those that
are not for signatures.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_MIN_RSA_BITS: Final = 2048
_BY_CURVE: Final = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
_MAX_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class VerificationKey:
    key_id: str | None
    algorithms: tuple[str, ...]
    public_key: Any = field(repr=False)
    """An object of `cryptography`."""


class VerificationKeys:
    def __init__(self, keys: Sequence[VerificationKey]) -> None:
        self.keys = tuple(keys)

    @classmethod
    def parse(cls, text: bytes) -> "VerificationKeys":
        """Return the usable keys of a key set.

        Raises:
            ValueError: it is not a key set, or has no usable key.
        """
        try:
            listed = json.loads(text)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError('it is not a key set: {"keys": [...]} is expected') from error
        if not isinstance(listed, list):
            raise ValueError('it is not a key set: "keys" is not a list')
        keys = [key for item in listed[:_MAX_KEYS] if (key := _key(item)) is not None]
        if not keys:
            raise ValueError(
                f"none of its {len(listed)} keys is usable: RSA keys of {_MIN_RSA_BITS} bits and more and "
                "those of the curves P-256, P-384, P-521 and Ed25519 are, if they are for signatures"
            )
        return cls(keys)

    def find(self, key_id: object, algorithm: object) -> VerificationKey | None:
        """Return the key of that name (of any name if None) with that algorithm."""
        for key in self.keys:
            if algorithm in key.algorithms and (key_id is None or key.key_id == key_id):
                return key
        return None


def _key(item: object) -> VerificationKey | None:
    if not isinstance(item, dict) or item.get("use", "sig") != "sig":
        return None
    import jwt

    algorithms = _algorithms(item)
    if not algorithms:
        return None
    try:
        public_key: Any = jwt.PyJWK(item, algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if hasattr(public_key, "public_key"):
        public_key = public_key.public_key()  # a set with private keys in it
    if item["kty"] == "RSA" and public_key.key_size < _MIN_RSA_BITS:
        return None
    key_id = item.get("kid")
    return VerificationKey(key_id if isinstance(key_id, str) else None, algorithms, public_key)


def _algorithms(item: Mapping[str, Any]) -> tuple[str, ...]:
    kind, curve = item.get("kty"), item.get("crv")
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return ()
    algorithms = _RSA if kind == "RSA" else _BY_CURVE.get((kind, str(curve)), ())
    only = item.get("alg")
    return algorithms if only is None else tuple(each for each in algorithms if each == only)
