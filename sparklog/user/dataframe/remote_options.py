"""The options of a read that name the object store of a cluster's tier.

`remoteRead=false` leaves all to brokers. The store of the application's own cluster is announced with its
address; for another cluster `sparklog.remote.uri` and `sparklog.remote.option.*` name it, with the meaning
of the broker's keys.
"""

from typing import Final

from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.node.remote_log.uri import OPTION_PREFIX, URI_KEY, RemoteUriError, parse_remote_uri
from sparklog.user.client.config import ClientConfig
from sparklog.user.dataframe.application_cluster import ApplicationAddress
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.given_options import GivenOptions

REMOTE_READ: Final = "remoteRead"
REMOTE_OPTIONS: Final = (REMOTE_READ, URI_KEY)
_AUTO: Final = "auto"
_NEVER: Final = "false"


def store_location(
    given: GivenOptions, client: ClientConfig, default_bootstrap_servers: str | None
) -> StoreLocation | None:
    """Return the store to read history from; None for brokers alone.

    Raises:
        DataSourceOptionError: an option is malformed, or names options of a store without the store.
    """
    wanted = (given.text(REMOTE_READ) or _AUTO).lower()
    if wanted not in (_AUTO, _NEVER):
        raise DataSourceOptionError(f"Option '{REMOTE_READ}' is '{wanted}'; it must be {_AUTO} or {_NEVER}")
    uri, options = given.text(URI_KEY), given.store_options()
    if uri is None and options:
        raise DataSourceOptionError(f"Option '{OPTION_PREFIX}{min(options)}' needs '{URI_KEY}' beside it")
    if uri is not None:
        try:
            parse_remote_uri(uri)
        except RemoteUriError as error:
            raise DataSourceOptionError(str(error)) from None
    if wanted == _NEVER:
        return None
    if uri is not None:
        return StoreLocation.of(uri, options)
    if client.of_this_application and isinstance(default_bootstrap_servers, ApplicationAddress):
        return default_bootstrap_servers.store
    return None
