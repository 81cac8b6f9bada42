"""Descriptions from the metadata image that brokers and the controller answer alike: all but topics."""

from collections.abc import Awaitable, Callable

from sparklog.node.config import BrokerConfig
from sparklog.node.metadata.image import MetadataImage
from sparklog.node.responses.describe_acls import describe_acls_response
from sparklog.node.responses.describe_client_quotas import (
    describe_client_quotas_response,
    describe_user_scram_credentials_response,
)
from sparklog.node.responses.describe_configs import describe_configs_response
from sparklog.node.responses.list_config_resources import list_config_resources_response
from sparklog.node.serving.requests import Handler, Request, Response
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.codec.versions import upgrade, upgrade_in_steps


class Descriptions:
    def __init__(self, image: Callable[[], MetadataImage], config: BrokerConfig) -> None:
        """Answer from the newest `image`, which may raise the error of a refusal."""
        self._image = image
        self._config = config

    def handlers(self) -> dict[ApiKey, Handler]:
        return {
            ApiKey.DESCRIBE_CONFIGS: self._configs,
            ApiKey.LIST_CONFIG_RESOURCES: self._config_resources,
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self._client_quotas,
            ApiKey.DESCRIBE_ACLS: self._acls,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self._user_scram_credentials,
        }

    async def _configs(self, request: Request) -> Response:
        # Clients ask each broker about itself, and any broker about topics and groups.
        body = await upgrade_in_steps(request.body)
        return await describe_configs_response(self._image(), self._config, body)

    async def _config_resources(self, request: Request) -> Response:
        body = await upgrade_in_steps(request.body)
        return await list_config_resources_response(self._image(), body, request.api_version)

    async def _client_quotas(self, request: Request) -> Response:
        return await describe_client_quotas_response(self._image(), upgrade(request.body))

    def _acls(self, request: Request) -> Awaitable[Response]:
        return describe_acls_response(self._image(), self._config, upgrade(request.body))

    def _user_scram_credentials(self, request: Request) -> Awaitable[Response]:
        return describe_user_scram_credentials_response(self._image(), request.body)
