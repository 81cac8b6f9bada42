"""Answers ApiVersions out of a listener's table (KIP-35, KIP-511, KIP-584).

A request in a version that is not known is answered in v0 with UNSUPPORTED_VERSION and the versions of
ApiVersions itself, and the connection is kept, so that a newer client can ask again. Its body is not read. A
client of SASL that has its response gets no second one before it has logged in (`machine/authenticator.py`).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from kio.schema.api_versions.v0 import response as v0
from kio.schema.api_versions.v4 import response as newest

from sparklog.node.serving.machine.authenticator import Authenticator
from sparklog.node.serving.requests import Features, Request
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions, known_versions
from sparklog.protocol.errors import ErrorCode

_SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Pattern of client software names and versions from v3 on; others are INVALID_REQUEST (KIP-511)."""

_KEPT_CHARACTERS: Final = 256
"""Characters of name and version kept for each connection, which may be unauthenticated."""

_NO_FEATURES: Final = Features(supported={}, finalized={}, finalized_epoch=-1)

_ADVERTISED_FROM_ZERO: Final = frozenset({ApiKey.PRODUCE})
"""librdkafka does not produce to a broker whose Produce versions do not begin at 0; Kafka 4 claims 0, too."""


class _Authenticated(Protocol):
    """The part of a connection that this handler uses."""

    authenticator: Authenticator


class ApiVersionsHandler:
    supported = known_versions(ApiKey.API_VERSIONS)

    def __init__(
        self, served: Mapping[ApiKey, SupportedVersions], features: Callable[[], Features] | None
    ) -> None:
        ranges = dict(served) | {ApiKey.API_VERSIONS: self.supported}
        self._api_keys = tuple(
            newest.ApiVersion(
                api_key=int(api_key),
                min_version=0 if api_key in _ADVERTISED_FROM_ZERO else versions.min_version,
                max_version=versions.max_version,
            )
            for api_key, versions in sorted(ranges.items())
        )
        self._features = features

    def handle(self, request: Request) -> Any:
        body = request.body
        if request.api_version >= 3 and not (
            _SOFTWARE_NAME.fullmatch(body.client_software_name)
            and _SOFTWARE_NAME.fullmatch(body.client_software_version)
        ):
            return unthrottled(newest.ApiVersionsResponse, error_code=ErrorCode.invalid_request, api_keys=())
        if request.api_version >= 3:
            request.connection.client_software = (
                body.client_software_name[:_KEPT_CHARACTERS],
                body.client_software_version[:_KEPT_CHARACTERS],
            )
        cast(_Authenticated, request.connection).authenticator.versions_sent()
        features = _NO_FEATURES if self._features is None else self._features()
        return unthrottled(
            newest.ApiVersionsResponse,
            error_code=ErrorCode.none,
            api_keys=self._api_keys,
            supported_features=tuple(
                newest.SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
                for name, (lowest, highest) in features.supported.items()
                # Clients of v3 refuse a feature that begins at 0 (KIP-1022).
                if lowest > 0 or request.api_version >= 4
            ),
            finalized_features_epoch=features.finalized_epoch,
            finalized_features=tuple(
                newest.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in features.finalized.items()
            ),
        )

    def handle_unsupported_version(self, request: Request) -> Any:
        return v0.ApiVersionsResponse(
            error_code=ErrorCode.unsupported_version,
            api_keys=(
                v0.ApiVersion(
                    api_key=int(ApiKey.API_VERSIONS),
                    min_version=self.supported.min_version,
                    max_version=self.supported.max_version,
                ),
            ),
        )
