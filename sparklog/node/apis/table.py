"""All rows: those of every module of this package.

A new row is found without being listed; two rows of one API are a mistake.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final

from sparklog.node import apis
from sparklog.node.apis.row import ApiRow
from sparklog.protocol.codec.allowance import USUAL_TIMES
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions

_ABOVE: Final = {"cluster_actions", "listeners", "table"}
"""The modules that are made of the rows."""


def _found() -> Iterator[ApiRow]:
    for module in iter_modules(apis.__path__):
        if module.name not in _ABOVE:
            names = vars(import_module(f"{apis.__name__}.{module.name}"))
            yield from (row for row in names.values() if isinstance(row, ApiRow))


def by_api_key(found: Iterable[ApiRow]) -> Mapping[ApiKey, ApiRow]:
    """Return the row of each API.

    Raises:
        ValueError: an API has two rows.
    """
    rows: dict[ApiKey, ApiRow] = {}
    for row in found:
        if rows.setdefault(row.api_key, row) is not row:
            raise ValueError(f"{row.api_key.name} has two rows in sparklog/node/apis: leave one")
    return MappingProxyType(rows)


ROWS: Final[Mapping[ApiKey, ApiRow]] = by_api_key(_found())

FORWARDED_APIS: Final = frozenset(row.api_key for row in ROWS.values() if row.forwarded)
"""The APIs that brokers forward, since the controller decides."""

CLIENT_VERSIONS: Final[Mapping[ApiKey, SupportedVersions]] = MappingProxyType(
    {row.api_key: row.versions for row in ROWS.values() if row.versions is not None}
)


def memory_times(api_key: int) -> int:
    """Return the `ApiRow.memory_times` of an API, known or not."""
    row = ROWS.get(api_key)  # type: ignore[call-overload]
    return USUAL_TIMES if row is None else row.memory_times
