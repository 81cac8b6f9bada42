"""A listener's table of APIs: the handler, the codec and the metrics of each version.

ApiVersions is answered here, out of the table. `requests` has the results of handlers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import CoroutineType, coroutine
from typing import Any, Final, cast

from sparklog.node.serving.api_versions import ApiVersionsHandler
from sparklog.node.serving.request_metrics import KINDS, ApiMetrics, RequestMetrics, api_name
from sparklog.node.serving.requests import Api, Features, Handler, Request
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions, known_versions
from sparklog.protocol.codec.frames import RequestCodec, request_codec
from sparklog.protocol.codec.steps import Steps, steps_of
from sparklog.protocol.errors import ErrorCode, KafkaError

_LOAD_PAUSE_S: Final = 0.005


class Route:
    """The handler of one version of an API, and its codec."""

    __slots__ = ("api_key", "codec", "handler", "many", "metrics", "metrics_of", "refuse")

    def __init__(self, api_key: ApiKey, codec: RequestCodec, api: Api, metrics: RequestMetrics) -> None:
        self.api_key = api_key
        self.codec = codec._replace(memory_times=api.memory_times)
        self.handler = api.handler if api.under is None else _under(api.under, api.handler)
        self.many = api.many
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
        return looked_after(answer) if type(answer) is CoroutineType else answer

    async def looked_after(answer: Any) -> Any:
        while type(answer) is CoroutineType:
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
