"""Tables of listeners, and their guards, made from the rows."""

from collections.abc import Callable, Mapping

from sparklog.node.apis.row import Side
from sparklog.node.apis.table import ROWS
from sparklog.node.authorization.guards.guard import Guard, pass_on
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Api, Handler
from sparklog.protocol.codec.apis import ApiKey


def offered(side: Side) -> frozenset[ApiKey]:
    """Return the APIs of a side's listeners, those aside that each listener answers itself.

    The controller's listener also has what only brokers answer: it is the bootstrap address.
    """
    is_bootstrap = side is Side.CONTROLLER
    return frozenset(
        row.api_key
        for row in ROWS.values()
        if row.offer(side) is not None or (is_bootstrap and row.versions is not None)
    )


def listener_apis(
    side: Side, handlers: Mapping[ApiKey, Handler], look_at_lease: Callable[[], None] | None = None
) -> dict[ApiKey, Api]:
    """Return the part of a listener's table that `handlers` answer.

    `look_at_lease` is called before each step of an answer that a broker gives under its lease.

    Raises:
        ValueError: a handler of an API that `side` does not offer.
    """
    apis: dict[ApiKey, Api] = {}
    offered_here = offered(side)
    for api_key, handler in handlers.items():
        if api_key not in offered_here:
            raise ValueError(f"{api_key.name} has a handler, but no offer of the {side.value} in its row")
        row = ROWS[api_key]
        offer = row.offer(side)
        apis[api_key] = Api(
            *row.versions_at(side),
            handler,
            many=offer is not None and offer.many,
            under=look_at_lease if offer is not None and offer.under_lease else None,
            refuse=row.refuse if offer is not None and offer.answers_errors else None,
            memory_times=row.memory_times,
            fixed_reader=None if offer is None else offer.fixed_reader,
        )
    return apis


def listener_guards(side: Side, config: BrokerConfig) -> Mapping[ApiKey, Guard]:
    """Return the guard before each handler of a side's listeners, for where an authorizer is configured."""
    by_listener = {row.api_key: pass_on for row in ROWS.values() if row.answered_by_listener}
    return {**by_listener, **{api_key: ROWS[api_key].guard(side, config) for api_key in offered(side)}}
