"""The quota that applies to a client, and the clients that share it.

Eight levels, the first that is set wins, for each kind of quota separately:

    1. the user and the client id                       for this client of this user
    2. the user and the default client id               for each client id of this user
    3. the user                                         for all of this user's clients together
    4. the default user and the client id               for this client id of each user
    5. the default user and the default client id       for each client id of each user
    6. the default user                                 for all clients of each user together
    7. the client id                                    for all users of this client id together
    8. the default client id                            for each client id, all its users together

A client without an id has the quotas of users alone, 3 and 6.

Pure. Source: Kafka's ClientQuotaManager, DefaultQuotaCallback; KIP-13, KIP-55, KIP-546.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from sparklog.node.config.client_quotas import CLIENT_ID, IP, USER
from sparklog.node.metadata.image import ClientQuotaEntity

_Part = tuple[str, str | None]


class Limit(NamedTuple):
    bound: float
    """The allowed rate a second."""
    shared_by: tuple[str | None, str | None]
    """The user and client id whose requests count together; None stands for any."""


class ClientLimits:
    """One kind of quota of users and client ids."""

    def __init__(self, key: str, quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> None:
        """Read the quotas under Kafka's name `key`."""
        self._bounds = {entity: values[key] for entity, values in quotas.items() if key in values}
        self.limit_anybody = bool(self._bounds)

    def limit(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client, None if it is unlimited."""
        this_user: _Part = (USER, user)
        any_user: _Part = (USER, None)
        this_client: _Part = (CLIENT_ID, client_id)
        any_client: _Part = (CLIENT_ID, None)
        if not client_id:
            return self._first((((this_user,), (user, None)), ((any_user,), (user, None))))
        return self._first(
            (
                ((this_client, this_user), (user, client_id)),
                ((any_client, this_user), (user, client_id)),
                ((this_user,), (user, None)),
                ((this_client, any_user), (user, client_id)),
                ((any_client, any_user), (user, client_id)),
                ((any_user,), (user, None)),
                ((this_client,), (None, client_id)),
                ((any_client,), (None, client_id)),
            )
        )

    def _first(
        self, levels: Iterable[tuple[ClientQuotaEntity, tuple[str | None, str | None]]]
    ) -> Limit | None:
        for entity, shared_by in levels:
            bound = self._bounds.get(entity)
            if bound is not None:
                return Limit(bound, shared_by)
        return None


class AddressLimits:
    """One kind of quota of addresses."""

    def __init__(self, key: str, quotas: Mapping[ClientQuotaEntity, Mapping[str, float]]) -> None:
        """Read the quotas under Kafka's name `key`."""
        self._bounds: dict[str | None, float] = {}
        for entity, values in quotas.items():
            if key in values and IP in dict(entity):
                address = dict(entity)[IP]
                self._bounds[None if address is None else str(ip_address(address))] = values[key]

    def bound(self, address: str) -> float | None:
        """Return the allowed rate of an address a second, None if it is unlimited."""
        bound = self._bounds.get(address)
        return self._bounds.get(None) if bound is None else bound
