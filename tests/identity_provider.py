"""An identity provider for tests: keys, tokens that it signs, and an address at which it tells of both."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER: Final = "https://identity.example.com"


@cache
def signing_key(name: str, algorithm: str = "RS256") -> Any:
    """Return a private key, the same for a name."""
    if algorithm.startswith("ES"):
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class IdentityProvider:
    """Signs tokens with a key of its own."""

    def __init__(self, key_id: str = "key-1", algorithm: str = "RS256") -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.asked: list[tuple[str, str]] = []
        """What was asked of it: paths, and what came with them."""

    @property
    def private_key(self) -> Any:
        return signing_key(self.key_id, self.algorithm)

    def jwk(self) -> dict[str, Any]:
        """Return the public key as a provider tells it."""
        public_key = self.private_key.public_key()
        kind = {"R": RSAAlgorithm, "P": RSAAlgorithm, "E": ECAlgorithm}[self.algorithm[0]]
        to_jwk = OKPAlgorithm.to_jwk if self.algorithm == "EdDSA" else kind.to_jwk
        return {**json.loads(to_jwk(public_key)), "kid": self.key_id, "use": "sig"}

    def key_set(self) -> bytes:
        """Return the public keys as a JSON Web Key Set."""
        return json.dumps({"keys": [self.jwk()]}).encode()

    def token(self, *, headers: Mapping[str, Any] | None = None, **claims: Any) -> str:
        """Return a token for ann that is good for an hour, with these claims; None leaves one out."""
        now_s = int(time.time())
        said = {"sub": "ann", "iat": now_s, "exp": now_s + 3600, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(said, self.private_key, self.algorithm, {"kid": self.key_id, **(headers or {})})

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Tell keys at `/keys` and grant tokens at `/token`, at the address that is given."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append((self.path, ""))
                self._answer(provider.key_set())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                provider.asked.append((self.path, f"{self.headers['Authorization']} {body}"))
                granted = {"access_token": provider.token(), "token_type": "Bearer", "expires_in": 3600}
                self._answer(json.dumps(granted).encode())

            def _answer(self, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Be silent."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
