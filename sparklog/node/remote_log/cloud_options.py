"""Options of a cloud's store, `sparklog.remote.option.*`, as obstore takes them.

A key is one of obstore's: of the HTTP client (`allow_http`, `proxy_url`), `max_retries`, or else of the
provider (`region`, `endpoint`, also with its prefix: `aws_region`). Time limits are shorter than obstore's,
since callers wait on a broker: a request ends within 8 s, and is repeated within 2 s of its first attempt, so
that a failure shows in 10 s.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from obstore.exceptions import BaseError, UnknownConfigurationKeyError
from obstore.store import AzureStore, GCSStore, S3Store, from_url

from sparklog.node.remote_log.uri import OPTION_PREFIX, URI_KEY, RemoteUri, RemoteUriError

CloudClient = AzureStore | GCSStore | S3Store

_CLIENT_KEYS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_CLIENT_DEFAULTS: Final = {"connect_timeout": "3s", "timeout": "8s"}
_MAX_RETRIES: Final = "max_retries"
_DEFAULT_RETRIES: Final = 4
_RETRY_TIMEOUT: Final = timedelta(seconds=2)
_BACKOFF: Final = {
    "init_backoff": timedelta(milliseconds=100),
    "max_backoff": timedelta(seconds=1),
    "base": 2,
}
_PROVIDER_DEFAULTS: Final = {
    # Servers that speak S3 without its bulk deletion (Google's, Alibaba's) are many.
    "s3": {"disable_bulk_delete": "true"},
}
_IN_THE_URI: Final = ("bucket", "bucket_name", "container", "container_name", "root_url")
"""Endings of keys by which obstore would use another bucket than the URI's."""
_CERTIFICATES: Final = frozenset({"proxy_ca_certificate", "root_certificate"})
_PEM: Final = "-----BEGIN"


class CloudClients(NamedTuple):
    """Two clients of one prefix."""

    repeating: CloudClient
    """For requests that may be sent twice."""
    unrepeated: CloudClient
    """For conditional writes: a repetition of one that succeeded unseen would report another writer."""


def open_clients(uri: RemoteUri, options: Mapping[str, str]) -> CloudClients:
    """Return clients for a prefix; nothing is sent yet.

    Raises:
        RemoteUriError: an option has an unknown name or a bad value.
    """
    client: dict[str, Any] = dict(_CLIENT_DEFAULTS)
    provider: dict[str, str] = dict(_PROVIDER_DEFAULTS.get(uri.scheme, {}))
    retries = _DEFAULT_RETRIES
    for key, value in options.items():
        if key == _MAX_RETRIES:
            if not value.isdecimal():
                raise RemoteUriError(f"{OPTION_PREFIX}{key}={value} is not a number of retries")
            retries = int(value)
        elif key in _CERTIFICATES:
            client[key] = _certificate(key, value)
        elif key in _CLIENT_KEYS:
            client[key] = value
        else:
            _check_provider_option(uri, key, value)
            provider[key] = value

    def client_with(max_retries: int) -> CloudClient:
        try:
            opened: CloudClient = from_url(  # type: ignore[call-overload]
                str(uri),
                config=provider,
                client_options=client,
                retry_config={
                    "max_retries": max_retries,
                    "retry_timeout": _RETRY_TIMEOUT,
                    "backoff": _BACKOFF,
                },
            )
        except (BaseError, ValueError) as error:
            raise RemoteUriError(f"{uri} with {_names(options)}: {described(error)}") from None
        return opened

    return CloudClients(client_with(retries), client_with(0))


def _check_provider_option(uri: RemoteUri, key: str, value: str) -> None:
    """Check a key by itself, so that a message can name it.

    Raises:
        RemoteUriError: the provider has no such key, its value cannot be read, or the URI says it.
    """
    if key.lower().endswith(_IN_THE_URI):
        raise RemoteUriError(f"{OPTION_PREFIX}{key} is refused: {URI_KEY} names the bucket, here {uri}")
    kind: Any = {"s3": S3Store, "gs": GCSStore}.get(uri.scheme, AzureStore)
    try:
        kind("container", config={key: value, **({"account_name": "a"} if kind is AzureStore else {})})
    except UnknownConfigurationKeyError:
        raise RemoteUriError(
            f"{OPTION_PREFIX}{key} is no option of {uri.scheme}://; it is none of the HTTP client either: "
            f"{', '.join(sorted(_CLIENT_KEYS | {_MAX_RETRIES}))}"
        ) from None
    except (BaseError, ValueError) as error:
        # A key may need others beside it, which are checked together; a value that cannot be parsed does not.
        if "failed to parse" in str(error).lower():
            raise RemoteUriError(f"{OPTION_PREFIX}{key}: {described(error)}") from None


def _certificate(key: str, value: str) -> str:
    """Return a PEM text, given as such or as the path of its file."""
    if value.lstrip().startswith(_PEM):
        return value
    try:
        return Path(value).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise RemoteUriError(f"{OPTION_PREFIX}{key}: {value} is no readable PEM file: {error}") from None


def _names(options: Mapping[str, str]) -> str:
    return ", ".join(f"{OPTION_PREFIX}{key}" for key in sorted(options)) or "no options"


def described(error: Exception) -> str:
    """Return an obstore error's message without the Rust structures behind it."""
    return str(error).split("\n\nDebug source:", 1)[0].strip()
