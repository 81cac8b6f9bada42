"""The URI of the tier, `sparklog.remote.uri`, taken apart before anything is opened.

A scheme has one spelling below (`s3a` is `s3`), a prefix no slash at its ends. Secrets have no place in a
URI, since URIs are logged: user names, queries and fragments are refused, and not repeated in the message.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

URI_KEY: Final = "sparklog.remote.uri"
OPTION_PREFIX: Final = "sparklog.remote.option."

_CLOUD_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfs",
    "abfss": "abfss",
}
_EXAMPLES: Final = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///directory"
_AZURE_HOST: Final = re.compile(r"[^@/]+@[^@/]+\.dfs\.core\.windows\.net")


class RemoteUriError(ValueError):
    """`sparklog.remote.uri`, or an option of its store, is not usable; the message names the key."""


class RemoteUri(NamedTuple):
    scheme: str
    """`s3`, `gs`, `az`, `abfs`, `abfss` or `file`."""
    authority: str
    """The bucket or container, with Azure's account if the URI has it; empty for `file`."""
    path: str
    """The prefix in the bucket, without slashes at its ends; for `file` the absolute directory."""

    def __str__(self) -> str:
        if self.scheme == "file":
            return f"file://{self.path}"
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")


def parse_remote_uri(uri: str) -> RemoteUri:
    """Return the parts of a URI.

    >>> parse_remote_uri("s3a://bucket/some/prefix/")
    RemoteUri(scheme='s3', authority='bucket', path='some/prefix')

    Raises:
        RemoteUriError: another scheme, no bucket, a relative directory, or parts that a URI here has not.
    """
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise RemoteUriError(f"{URI_KEY} is not a URI: {error}; give {_EXAMPLES}") from None
    scheme, host = parts.scheme.lower(), parts.netloc
    if parts.query or parts.fragment:
        raise RemoteUriError(
            f"{URI_KEY}: a URI with '?' or '#' is refused; options of the store are {OPTION_PREFIX}*"
        )
    if "@" in host and not (scheme in ("abfs", "abfss") and _AZURE_HOST.fullmatch(host)):
        raise RemoteUriError(
            f"{URI_KEY}: a URI with '@' is refused; credentials come from the provider's chain "
            f"or from {OPTION_PREFIX}*"
        )
    if scheme == "hdfs":
        raise _refused(uri, "HDFS has no compare-and-swap, which keeps two applications apart")
    if scheme != "file" and scheme not in _CLOUD_SCHEMES:
        raise _refused(uri, f"{scheme!r} is no scheme of a store" if scheme else "it has no scheme")
    if any(part in (".", "..") for part in parts.path.split("/")):
        raise _refused(uri, "its path has '.' or '..' in it")
    if scheme == "file":
        return _directory(uri, host, unquote(parts.path))
    if not host:
        raise _refused(uri, "it names no bucket")
    return RemoteUri(_CLOUD_SCHEMES[scheme], host, _without_empty(parts.path))


def _directory(uri: str, host: str, path: str) -> RemoteUri:
    if host not in ("", "localhost"):
        raise _refused(uri, f"a directory has no host, here {host!r}")
    if not path.startswith("/") or not path.strip("/"):
        raise _refused(uri, "a directory is absolute and not the root")
    return RemoteUri("file", "", "/" + _without_empty(path))


def _without_empty(path: str) -> str:
    return "/".join(part for part in path.split("/") if part)


def _refused(uri: str, reason: str) -> RemoteUriError:
    return RemoteUriError(f"{URI_KEY}={uri}: {reason}; give {_EXAMPLES}")
