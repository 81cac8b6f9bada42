"""A cloud's store when the cloud refuses, fails or says nothing: each has its error, in bounded time."""

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.node.remote_log.object_store import (
    ObjectStore,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sparklog.node.remote_log.opened_store import check_access, open_store
from sparklog.node.remote_log.uri import RemoteUriError
from tests.s3_server import S3Server, s3_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


class OneAnswer:
    """A server that gives every request one status; without a status it says nothing."""

    def __init__(self, status: str | None, body: bytes = b"") -> None:
        self.requests: list[str] = []
        """The head of each."""
        self._status = status
        self._body = body
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def options(self) -> dict[str, str]:
        host, port = self._listener.getsockname()
        return S3Server(f"http://{host}:{port}").options

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            request = connection.recv(65536)
            self.requests.append(request.partition(b"\r\n\r\n")[0].decode())
            if self._status is not None:
                fields = f"Content-Length: {len(self._body)}\r\nConnection: close"
                connection.sendall(f"HTTP/1.1 {self._status}\r\n{fields}\r\n\r\n".encode() + self._body)
                connection.close()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()


@contextmanager
def answering(status: str | None, body: bytes = b"") -> Iterator[OneAnswer]:
    server = OneAnswer(status, body)
    try:
        yield server
    finally:
        server.stop()


def failure_of(store: ObjectStore, action: str) -> StoreError:
    """Return the error of one call."""

    async def call() -> None:
        match action:
            case "create":
                await store.create("name", b"data")
            case "replace":
                await store.replace("name", b"data", '"version"')
            case "get":
                await store.get("name")
            case "get_range":
                await store.get_range("name", 0, 1)
            case "delete":
                await store.delete("name")
            case "list":
                async for _ in store.list("name"):
                    pass
            case "check_access":
                await check_access(store)

    with pytest.raises(StoreError) as raised:
        asyncio.run(call())
    return raised.value


REFUSALS = ("403 Forbidden", "401 Unauthorized", "400 Bad Request", "501 Not Implemented")
ACTIONS = ("create", "replace", "get", "get_range", "delete", "list")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("status", REFUSALS)
def test_refusal_of_the_cloud_is_no_failure_that_ends_by_itself(status: str, action: str) -> None:
    """Missing permissions are shown to the user; repeating would hide them."""
    with answering(status) as server:
        error = failure_of(open_store("s3://bucket/prefix", server.options), action)
    assert type(error) is StoreRefusedError
    assert status.split()[0] in str(error)
    assert "s3://bucket/prefix" in str(error)


@pytest.mark.parametrize("action", ACTIONS)
def test_failure_of_the_cloud_is_an_unknown_outcome(action: str) -> None:
    """A 500 may follow a write: its writer reads before it writes again."""
    with answering("500 Internal Server Error") as server:
        error = failure_of(open_store("s3://bucket/prefix", {**server.options, "max_retries": "1"}), action)
    assert type(error) is StoreUnavailableError
    assert "500" in str(error)


def test_missing_credentials_are_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore's last attempt, at an address that no user knows, says little about its reason."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    options = {"region": "us-east-1", "metadata_endpoint": "http://169.254.0.1:1", "connect_timeout": "100ms"}
    store = open_store("s3://bucket/prefix", {**options, "max_retries": "0"})
    assert "no credentials" in str(failure_of(store, "get"))


def test_slow_upload_that_the_cloud_calls_a_bad_request_is_unavailable() -> None:
    """A busy network is no mistake of the user."""
    body = b"<Error><Code>RequestTimeout</Code><Message>not read within the timeout</Message></Error>"
    with answering("400 Bad Request", body) as server:
        error = failure_of(open_store("s3://bucket/prefix", server.options), "create")
    assert type(error) is StoreUnavailableError


def test_conditional_write_is_sent_once() -> None:
    """Repeated after a success that went unseen, its own object would look like another writer's."""
    with answering("503 Service Unavailable") as server:
        store = open_store("s3://bucket/prefix", server.options)
        failure_of(store, "create")
        failure_of(store, "replace")
        assert [request.split()[0] for request in server.requests] == ["PUT", "PUT"]


def test_read_is_repeated_within_the_bound() -> None:
    """A 503 storm of a second goes unnoticed, and a longer one shows in time."""
    with answering("503 Service Unavailable") as server:
        began = time.monotonic()
        failure_of(open_store("s3://bucket/prefix", server.options), "get")
        assert time.monotonic() - began < 10
        assert len(server.requests) > 1


def test_silent_cloud_is_unavailable_after_the_time_limit() -> None:
    """A request that nothing answers must not hold a thread of work forever."""
    with answering(None) as server:
        options = {**server.options, "timeout": "200ms", "max_retries": "0"}
        store = open_store("s3://bucket/prefix", options)
        for action in ACTIONS:
            assert type(failure_of(store, action)) is StoreUnavailableError


def test_cloud_that_cannot_be_reached_is_unavailable() -> None:
    """A bucket that went away comes back."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    options = {**S3Server(f"http://{host}:{port}").options, "max_retries": "0"}
    assert type(failure_of(open_store("s3://bucket/prefix", options), "get")) is StoreUnavailableError


@pytest.mark.parametrize("action", [*ACTIONS, "check_access"])
def test_missing_bucket_is_refused_and_no_missing_object(server: S3Server, action: str) -> None:
    """To a leader a missing manifest means a new partition; a missing bucket must not mean that."""
    error = failure_of(open_store("s3://nobodys-bucket/prefix", server.options), action)
    assert type(error) is StoreRefusedError
    assert "bucket does not exist" in str(error)


def test_server_without_conditions_is_refused_by_the_check_of_access() -> None:
    """Over a store that ignores If-None-Match two applications would take the same prefix."""
    with answering('200 OK\r\nETag: "same"') as server:
        error = failure_of(open_store("s3://bucket/prefix", server.options), "check_access")
    assert type(error) is StoreRefusedError
    assert "If-None-Match" in str(error)


def test_store_without_e_tags_is_refused() -> None:
    """No manifest could be replaced safely."""
    with answering("200 OK") as server:
        error = failure_of(open_store("s3://bucket/prefix", server.options), "create")
    assert isinstance(error, StoreError)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"bogus": "1"}, "sparklog.remote.option.bogus"),
        ({"account_name": "azures"}, "sparklog.remote.option.account_name"),
        ({"virtual_hosted_style_request": "maybe"}, "sparklog.remote.option.virtual_hosted_style_request"),
        ({"allow_http": "maybe"}, "sparklog.remote.option.allow_http"),
        ({"timeout": "long"}, "sparklog.remote.option.timeout"),
        ({"max_retries": "many"}, "sparklog.remote.option.max_retries"),
        ({"root_certificate": "/no/such/file.pem"}, "sparklog.remote.option.root_certificate"),
        ({"aws_bucket": "another"}, "sparklog.remote.option.aws_bucket"),
    ],
)
def test_bad_option_is_refused_by_its_full_name(options: dict[str, str], named: str) -> None:
    """The user finds the line in the configuration."""
    with pytest.raises(RemoteUriError) as refused:
        open_store("s3://bucket/prefix", {"region": "us-east-1", **options})
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket/p", {"aws_region": "eu-west-1", "AWS_ENDPOINT": "http://127.0.0.1:1"}),
        ("gs://bucket/p", {"google_skip_signature": "true"}),
        ("az://container/p", {"account_name": "account"}),
        ("abfss://files@account.dfs.core.windows.net/p", {}),
    ],
)
def test_store_of_each_cloud_is_opened_without_a_request(uri: str, options: dict[str, str]) -> None:
    """Brokers open it before they need it, and offline."""
    assert open_store(uri, options).uri == uri


def test_google_compares_generations() -> None:
    """Google's conditions are not those of the others: it ignores If-Match when an object is written."""
    with answering('200 OK\r\nETag: "same"\r\nx-goog-generation: 42') as server:
        key = {
            "gcs_base_url": server.options["endpoint"],
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        store = open_store(
            "gs://bucket/prefix", {"service_account_key": json.dumps(key), "allow_http": "true"}
        )

        async def write() -> None:
            version = await store.create("owner", b"1")
            await store.replace("owner", b"2", version)

        asyncio.run(write())
    assert [request.lower().count("x-goog-if-generation-match: 0") for request in server.requests] == [1, 0]
    assert "x-goog-if-generation-match: 42" in server.requests[1].lower()


def test_azure_without_an_account_is_refused_by_name() -> None:
    """The container alone does not say where it is."""
    with pytest.raises(RemoteUriError, match="Account must be specified"):
        open_store("az://container/p", {})


def test_certificate_is_read_from_its_file(tmp_path: Path) -> None:
    """A private certificate authority is a file on the brokers' machines."""
    broken = tmp_path / "ca.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    with pytest.raises(RemoteUriError, match="root_certificate"):
        open_store("s3://bucket/p", {"region": "us-east-1", "root_certificate": str(broken)})
