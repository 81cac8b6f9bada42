"""A server of S3 for tests: moto's, on a free port of the loopback, with one bucket."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

BUCKET: Final = "bucket"
_SIGNED: Final = {"Authorization": "AWS4-HMAC-SHA256 Credential=anyone/20260101/us-east-1/s3/aws4_request"}
"""What moto looks at: the region and the service; it checks no signature."""


class S3Server(NamedTuple):
    endpoint: str

    @property
    def options(self) -> dict[str, str]:
        """Options of a store in the server's bucket, without `sparklog.remote.option.`."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "anyone",
            "secret_access_key": "anything",
            "allow_http": "true",
        }


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Yield a running server; servers of one process share their buckets' contents."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        request = Request(f"{endpoint}/{BUCKET}", method="PUT", headers=_SIGNED)
        with urlopen(request, timeout=10):
            pass
        yield S3Server(endpoint)
    finally:
        server.stop()
