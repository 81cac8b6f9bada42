"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the password itself is never sent.

    client first   n,,n=user,r=<client nonce>
    server first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client final   c=biws,r=<both nonces>,p=<proof that the client knows the password>
    server final   v=<proof that the server knows the user's keys>

Rules kept: secrets are compared in constant time; a last message counts only with the whole nonce of its own
exchange, so that it cannot be replayed (in CVE-2024-56128 Kafka compared the end of the nonce only); names
and passwords are their UTF-8 bytes, as in Kafka, without SASLprep; channel binding is not offered. A server
keeps a `ScramCredential`, which verifies a password and cannot be used to log in.

Not a library, since driver and brokers authenticate each other by it too: the library for it costs every
process of an application 65 ms of its start, and normalises names that Kafka keeps apart.
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import new, pbkdf2_hmac
from hmac import compare_digest, digest
from secrets import token_bytes, token_urlsafe
from typing import Final

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
SCRAM_ALGORITHMS: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""The hash function of each mechanism, by hashlib's name."""
MIN_ITERATIONS: Final = 4096
_MAX_ITERATIONS: Final = 1 << 24
"""A client's limit on the iterations that a server may request, unless set lower."""
_NONCE_BYTES: Final = 24
_MAX_MESSAGE_BYTES: Final = 4096
"""A client's longer messages are refused unread: the nonce is kept and hashed before authentication."""
_SHOWN: Final = 100
"""The characters logged of an unauthenticated client's name."""

_CLIENT_FIRST: Final = re.compile(
    r"(?P<gs2_header>[ny],(?:a=(?P<authorization_id>[^,]*))?,)"
    r"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[^\0]*)?)"
)
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[^,]+),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?"
)
_CLIENT_FINAL: Final = re.compile(
    r"(?P<without_proof>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>[^,]+)"
)
_ILL_ESCAPED: Final = re.compile(r"=(?!2C|3D)")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_password(
        cls, mechanism: str, password: str, iterations: int, salt: bytes | None = None
    ) -> "ScramCredential":
        """Return the credential of a password; the salt is random if None."""
        salt = token_bytes(_NONCE_BYTES) if salt is None else salt
        algorithm = SCRAM_ALGORITHMS[mechanism]
        salted_password = pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salted_password, iterations, salt)

    @classmethod
    def of_salted_password(
        cls, mechanism: str, salted_password: bytes, iterations: int, salt: bytes
    ) -> "ScramCredential":
        algorithm = SCRAM_ALGORITHMS[mechanism]
        stored_key = new(algorithm, _client_key(salted_password, algorithm)).digest()
        return cls(salt, stored_key, _server_key(salted_password, algorithm), iterations)


class ScramVerification:
    def __init__(
        self,
        mechanism: str,
        credential_of: Callable[[str], ScramCredential | None],
        principal_of: Callable[[str], Principal] = lambda name: Principal("User", name),
        nonce: str | None = None,
    ) -> None:
        """Authenticate the users that `credential_of` knows; `nonce` is random if None."""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._algorithm = SCRAM_ALGORITHMS[mechanism]
        self._credential_of = credential_of
        self._principal_of = principal_of
        self._nonce = token_urlsafe(_NONCE_BYTES) if nonce is None else nonce
        self._name: str | None = None
        self._credential: ScramCredential | None = None
        self._binding = ""
        self._messages = ""
        self._is_over = False

    def respond(self, token: bytes) -> bytes:
        if self._is_over:
            raise SaslError("the exchange is over")
        self._is_over = True  # until this message proves valid
        if len(token) > _MAX_MESSAGE_BYTES:
            raise SaslError(f"a message of {len(token)} bytes, of at most {_MAX_MESSAGE_BYTES}")
        try:
            text = token.decode()
        except UnicodeDecodeError as error:
            raise SaslError("a message that is not UTF-8") from error
        if self._credential is None:
            answer = self._first(text)
            self._is_over = False
            return answer
        return self._final(text, self._credential)

    def _first(self, text: str) -> bytes:
        first = _CLIENT_FIRST.fullmatch(text)
        if first is None or _ILL_ESCAPED.search(first["name"]):
            raise SaslError("a malformed first message")
        name = first["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._credential_of(name)
        if credential is None:
            raise SaslError(f"no credentials of user {name[:_SHOWN]!r}")
        if first["authorization_id"] not in (None, "", first["name"]):
            raise SaslError(
                f"user {name[:_SHOWN]!r} requests the authorization id"
                f" {first['authorization_id'][:_SHOWN]!r}",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self._name, self._credential = name, credential
        self._nonce = first["nonce"] + self._nonce
        self._binding = b64encode(first["gs2_header"].encode()).decode()
        answer = f"r={self._nonce},s={b64encode(credential.salt).decode()},i={credential.iterations}"
        self._messages = f"{first['bare']},{answer}"
        return answer.encode()

    def _final(self, text: str, credential: ScramCredential) -> bytes:
        assert self._name is not None
        who = f"user {self._name[:_SHOWN]!r}"
        final = _CLIENT_FINAL.fullmatch(text)
        if final is None:
            raise SaslError(f"{who}: a malformed last message")
        is_of_this_exchange = compare_digest(final["nonce"].encode(), self._nonce.encode())
        is_bound_alike = compare_digest(final["binding"].encode(), self._binding.encode())
        if not (is_of_this_exchange and is_bound_alike):
            raise SaslError(f"{who}: a last message of another exchange")
        messages = f"{self._messages},{final['without_proof']}".encode()
        proof = _decoded(final["proof"])
        signature = digest(credential.stored_key, messages, self._algorithm)
        if len(proof) != len(signature):
            raise SaslError(f"{who}: a proof of another length")
        stored_key = new(self._algorithm, _xor(signature, proof)).digest()
        if not compare_digest(stored_key, credential.stored_key):
            raise SaslError(f"{who}: wrong password")
        self.principal = self._principal_of(self._name)
        return b"v=" + b64encode(digest(credential.server_key, messages, self._algorithm))


class ScramLogin:
    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        *,
        name: str | None = None,
        max_iterations: int = _MAX_ITERATIONS,
        nonce: str | None = None,
    ) -> None:
        """Log in as `user`; `name` is the mechanism's name on the server, if it differs.

        A server that requests more than `max_iterations` is refused: an impostor could keep the client
        computing.
        """
        self.name = mechanism if name is None else name
        self._max_iterations = max_iterations
        self._algorithm = SCRAM_ALGORITHMS[mechanism]
        self._password = password
        self._nonce = token_urlsafe(_NONCE_BYTES) if nonce is None else nonce
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={escaped},r={self._nonce}"
        self._expected: bytes | None = None
        """The server's expected last message; None before the first one."""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, token: bytes) -> bytes | None:
        if self._expected is not None:
            if not compare_digest(token, self._expected):
                raise SaslError("the server does not know the user's password")
            return None
        text = token.decode(errors="replace")
        first = _SERVER_FIRST.fullmatch(text)
        if first is None:
            raise SaslError("the server's first message is malformed")
        nonce, iterations = first["nonce"], int(first["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the server's first message is of another exchange")
        if not MIN_ITERATIONS <= iterations <= self._max_iterations:
            raise SaslError(
                f"the server asks for {iterations} iterations, of {MIN_ITERATIONS} to {self._max_iterations}"
            )
        algorithm = self._algorithm
        salted_password = pbkdf2_hmac(algorithm, self._password.encode(), _decoded(first["salt"]), iterations)
        without_proof = f"c=biws,r={nonce}"
        messages = f"{self._bare},{text},{without_proof}".encode()
        client_key = _client_key(salted_password, algorithm)
        proof = _xor(client_key, digest(new(algorithm, client_key).digest(), messages, algorithm))
        self._expected = b"v=" + b64encode(
            digest(_server_key(salted_password, algorithm), messages, algorithm)
        )
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


def _client_key(salted_password: bytes, algorithm: str) -> bytes:
    return digest(salted_password, b"Client Key", algorithm)


def _server_key(salted_password: bytes, algorithm: str) -> bytes:
    return digest(salted_password, b"Server Key", algorithm)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SaslError("a message that is not in base 64") from error
