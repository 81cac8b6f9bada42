"""A server of S3 for tests: moto's, on a free port of the loopback, with one bucket."""

import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import Request, urlopen
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

BUCKET: Final = "bucket"
_SIGNED: Final = {"Authorization": "AWS4-HMAC-SHA256 Credential=anyone/20260101/us-east-1/s3/aws4_request"}
"""What moto looks at: the region and the service; it checks no signature."""


class S3Server(NamedTuple):
    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Options of a store in the server's bucket, without `sparklog.remote.option.`."""
        options = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "anyone",
            "secret_access_key": "anything",
        }
        return options | ({"allow_http": "true"} if self.endpoint.startswith("http:") else {})


class Tripwire:
    """Lets something happen once, at a request for an object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: tuple[str, re.Pattern[str], bool, Callable[[], None]] | None = None

    def arm(self, method: str, path: str, action: Callable[[], None], *, after: bool) -> None:
        """Call `action` at the next request whose path matches; it is carried out before, or not at all."""
        self._armed = method, re.compile(path), after, action

    @property
    def is_armed(self) -> bool:
        return self._armed is not None

    def over(self, application: WSGIApplication) -> WSGIApplication:
        def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            tripped = self._trip(environ["REQUEST_METHOD"], environ["PATH_INFO"])
            if tripped is None:
                return application(environ, start_response)
            is_after, action = tripped
            if is_after:
                done = list(application(environ, start_response))
                action()
                return done
            action()
            start_response("503 Service Unavailable", [])
            return []

        return serve

    def _trip(self, method: str, path: str) -> tuple[bool, Callable[[], None]] | None:
        with self._lock:
            if self._armed is None or self._armed[0] != method or not self._armed[1].search(path):
                return None
            _, _, is_after, action = self._armed
            self._armed = None
            return is_after, action


@contextmanager
def s3_server(certificate: Path | None = None, tripwire: Tripwire | None = None) -> Iterator[S3Server]:
    """Yield a running server; servers of one process share their buckets' contents.

    With `certificate`, a PEM file with a key and its certificate, the server speaks TLS alone.
    """
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    tls: ssl.SSLContext | None = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    server = make_server(
        "127.0.0.1",
        0,
        (tripwire or Tripwire()).over(DomainDispatcherApplication(create_backend_app)),
        threaded=True,
        request_handler=MotoRequestHandler,
        ssl_context=tls,
    )
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
        request = Request(f"{endpoint}/{BUCKET}", method="PUT", headers=_SIGNED)
        # The server's certificate is of the test's authority, and this is no request that is tested.
        trusting = None if tls is None else ssl._create_unverified_context()
        with urlopen(request, timeout=10, context=trusting):
            pass
        yield S3Server(endpoint)
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
