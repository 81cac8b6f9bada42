"""A listener's table of APIs: the handler, the codec and the metrics of each version.

ApiVersions is answered here, out of the table (KIP-35, KIP-511, KIP-584). A request in a version that is not
known is answered in v0 with UNSUPPORTED_VERSION and the versions of ApiVersions itself, and the connection is
kept, so that a newer client can ask again. Its body is not read. A client of SASL that has its response gets
no second one before it has logged in (`machine/authenticator.py`).

`requests` has the results of handlers.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import coroutine
from typing import Any, Final, Protocol, cast

from kio.schema.api_versions.v0 import response as v0
from kio.schema.api_versions.v4 import response as newest

from sparklog.node.serving.machine.authenticator import Authenticator
from sparklog.node.serving.request_metrics import KINDS, ApiMetrics, RequestMetrics, api_name
from sparklog.node.serving.requests import Api, Features, Handler, Request
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions, known_versions
from sparklog.protocol.codec.frames import RequestCodec, request_codec
from sparklog.protocol.codec.steps import Steps, steps_of
from sparklog.protocol.errors import ErrorCode, KafkaError

_LOAD_PAUSE_S: Final = 0.005


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


class Route:
    """The handler of one version of an API, and its codec."""

    __slots__ = ("api_key", "codec", "handler", "many", "metrics", "metrics_of", "read_fixed", "refuse")

    def __init__(self, api_key: ApiKey, codec: RequestCodec, api: Api, metrics: RequestMetrics) -> None:
        self.api_key = api_key
        self.codec = codec._replace(memory_times=api.memory_times)
        self.handler = api.handler if api.under is None else _under(api.under, api.handler)
        self.many = api.many
        self.read_fixed = None if api.fixed_reader is None else api.fixed_reader(codec.api_version)
        """Reads requests in their usual shape; None if all are read as entities."""
        self.refuse = api.refuse
        self.metrics = metrics.of(api_name(api_key))
        kind = KINDS.get(api_key)
        self.metrics_of: Callable[[Any], ApiMetrics] | None = (
            None if kind is None else lambda body: metrics.of(kind(body))
        )
        """Returns the metrics for a request's body, where that is not `metrics`."""


class Routes:
    def __init__(
        self,
        apis: Mapping[ApiKey, Api],
        features: Callable[[], Features] | None,
        metrics: RequestMetrics,
    ) -> None:
        """Serve `apis`, and ApiVersions with their versions; count requests in `metrics`.

        Raises:
            ValueError: the table promises a version that cannot be read or written.
        """
        for api_key, api in apis.items():
            known = known_versions(api_key)
            if not known.min_version <= api.min_version <= api.max_version <= known.max_version:
                raise ValueError(
                    f"{api_key.name} v{api.min_version} to v{api.max_version}: kio has "
                    f"v{known.min_version} to v{known.max_version}"
                )
        served = {key: SupportedVersions(api.min_version, api.max_version) for key, api in apis.items()}
        api_versions = ApiVersionsHandler(served, features)
        supported = api_versions.supported
        self._apis = {**apis, ApiKey.API_VERSIONS: Api(*supported, api_versions.handle, many=False)}
        self._metrics = metrics
        self._unsupported_api_versions = Route(
            ApiKey.API_VERSIONS,
            request_codec(ApiKey.API_VERSIONS, 0),
            Api(0, 0, api_versions.handle_unsupported_version, many=False),
            metrics,
        )
        # The others are added by `load`, or when they are first asked for: their schemas take long to load,
        # and a listener must be up soon.
        self._routes: dict[tuple[int, int], Route] = {}
        for version in range(supported.min_version, supported.max_version + 1):
            self._add(ApiKey.API_VERSIONS, version)

    def find(self, api_key: int, api_version: int) -> Route:
        """Return the route of an API version.

        Raises:
            KafkaError: unsupported_version.
        """
        try:
            return self._routes[api_key, api_version]
        except KeyError:
            return self._add(api_key, api_version)

    async def load(self) -> None:
        """Load the schemas of all versions, a few ms at a time, so that later requests wait for none."""
        for api_key, api in self._apis.items():
            for version in range(api.max_version, api.min_version - 1, -1):
                self.find(api_key, version)
                await asyncio.sleep(_LOAD_PAUSE_S)

    def _add(self, api_key: int, api_version: int) -> Route:
        api = self._apis.get(cast(ApiKey, api_key))
        if api is None or not api.min_version <= api_version <= api.max_version:
            if api_key == ApiKey.API_VERSIONS:
                return self._unsupported_api_versions
            raise KafkaError(
                ErrorCode.unsupported_version, f"API key {api_key} version {api_version} is not served here"
            )
        key = ApiKey(api_key)
        route = Route(key, request_codec(api_key, api_version), api, self._metrics)
        self._routes[api_key, api_version] = route
        return route


def _under(look: Callable[[], None], handler: Handler) -> Handler:
    """Return `handler` with `look` called before it and before each further step of its coroutine."""

    def handle(request: Request) -> Any:
        look()
        answer = handler(request)
        return looked_after(answer) if isinstance(answer, Coroutine) else answer

    async def looked_after(answer: Any) -> Any:
        while isinstance(answer, Coroutine):
            answer = await with_looks(answer)
        return answer

    @coroutine
    def with_looks(answer: Awaitable[Any]) -> Steps[Any]:
        steps, completed = steps_of(answer), None
        try:
            while True:
                awaited = steps.send(completed)
                completed = yield awaited
                look()
        except StopIteration as last:
            return last.value
        finally:
            steps.close()

    return handle
