"""The first requests of a connection, which every listener answers (`serving.routes`, `calling.login`)."""

from typing import Final

from sparklog.node.apis.row import ApiRow
from sparklog.protocol.codec.apis import ApiKey

API_VERSIONS: Final = ApiRow(ApiKey.API_VERSIONS, answered_by_listener=True)

SASL_HANDSHAKE: Final = ApiRow(ApiKey.SASL_HANDSHAKE, answered_by_listener=True)

SASL_AUTHENTICATE: Final = ApiRow(ApiKey.SASL_AUTHENTICATE, answered_by_listener=True)
