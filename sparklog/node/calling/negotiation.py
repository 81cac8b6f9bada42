"""The versions that two sides can use, common to the asyncio and the blocking client.

A client asks in the newest version of ApiVersions. A server that does not know it answers in v0 with
UNSUPPORTED_VERSION, mostly with the versions of ApiVersions it has, and the client asks once more (KIP-511).
"""

from collections.abc import Generator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from kio.schema.api_versions.v4.request import ApiVersionsRequest

from sparklog.protocol.codec.apis import ApiKey, SupportedVersions, known_versions
from sparklog.protocol.codec.versions import downgrade
from sparklog.protocol.errors import ErrorCode, KafkaError

_KNOWN_API_KEYS: Final = frozenset(int(api_key) for api_key in ApiKey)


def api_versions_requests() -> Generator[Any, Any, None]:
    """Yield the requests to ask with; send in each response that had an error.

    Raises:
        KafkaError: the other side refuses for another reason than the version.
    """
    newest = ApiVersionsRequest(client_software_name="sparklog", client_software_version=_software_version())
    response = yield newest
    if response.error_code is ErrorCode.unsupported_version:
        offered = [item.max_version for item in response.api_keys if item.api_key == ApiKey.API_VERSIONS]
        known = known_versions(ApiKey.API_VERSIONS)
        response = yield downgrade(newest, min([*offered, known.max_version - 1]) if offered else 0)
    raise KafkaError(response.error_code, "the other side gave no API versions")


def _software_version() -> str:
    try:
        return version("sparklog")
    except PackageNotFoundError:
        return "unknown"


def usable_versions(response: Any) -> Mapping[ApiKey, SupportedVersions]:
    """Return the versions both sides know of each API, from a successful ApiVersions response."""
    usable = {}
    for item in response.api_keys:
        if item.api_key not in _KNOWN_API_KEYS:
            continue
        api_key = ApiKey(item.api_key)
        common = known_versions(api_key).intersection(SupportedVersions(item.min_version, item.max_version))
        if common is not None:
            usable[api_key] = common
    return usable


def fitting_version(entity: Any, usable: Mapping[ApiKey, SupportedVersions], peer: str) -> int:
    """Return the version to send `entity` in: its own, or the newest `peer` knows if that is older.

    Raises:
        KafkaError: unsupported_version, when the peer does not have the API or wants newer versions only.
    """
    api_key = ApiKey(entity.__api_key__)
    own = int(entity.__version__)
    versions = usable.get(api_key)
    if versions is None or own < versions.min_version:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"{peer} does not know {api_key.name}" + ("" if versions is None else f" v{own} any more"),
        )
    return min(own, versions.max_version)
