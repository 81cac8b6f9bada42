"""Error codes in a response: of the whole, and of each topic, partition or resource.

Compiled once for each type of response, because it is done for every answer. Source: Kafka's
`AbstractResponse.errorCounts`.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from operator import attrgetter
from typing import Any, Final, TypeAlias

from sparklog.protocol.codec.layout import entity_layout, once_per_type
from sparklog.protocol.errors import ErrorCode

_Counter: TypeAlias = Callable[[Any, Any], None]

_CODE: Final = "error_code"
_PARTITION_CODE: Final = "partition_error_code"
"""Name of the partition's error code in AddPartitionsToTxn."""
_NONE: Final = ErrorCode.none


def count_error_codes(response: Any, errors: Any) -> None:
    """Add the error codes of an entity to `errors`, a mapping in which every code begins at 0."""
    counter = _counter(type(response))
    if counter is not None:
        counter(response, errors)


@once_per_type
def _counter(entity_type: type[Any]) -> _Counter | None:
    """Return the counter of that type's codes; None if it can have none, or is ready bytes."""
    if not is_dataclass(entity_type):
        return None
    layout = entity_layout(entity_type)
    has_code = any(field.name == _CODE for field in layout.all_fields)
    below: list[tuple[Callable[[Any], Any], _Counter, bool]] = []
    for field in layout.all_fields:
        if field.entity_type is None:
            continue
        counter = _counter(field.entity_type)
        if counter is not None:
            below.append((attrgetter(field.name), counter, field.is_array))
    if not below:
        if any(field.name == _PARTITION_CODE for field in layout.all_fields):
            return _count_partition
        return _count_own if has_code else None

    if len(below) == 1 and not has_code and below[0][2]:
        return _count_in_items(*below[0][:2])

    def count(entity: Any, errors: Any) -> None:
        if has_code:
            errors[entity.error_code] += 1
        for field, counter, is_array in below:
            value = field(entity)
            if not value:
                continue
            if not is_array:
                counter(value, errors)
            elif counter is _count_own:
                _count_items(value, errors)
            else:
                for item in value:
                    counter(item, errors)

    return count


def _count_in_items(field: Callable[[Any], Any], counter: _Counter) -> _Counter:
    """Return the counter of an entity whose only codes are in the items of one array."""
    if counter is _count_own:
        return lambda entity, errors: _count_items(field(entity), errors)

    def count(entity: Any, errors: Any) -> None:
        for item in field(entity):
            counter(item, errors)

    return count


def _count_items(items: Any, errors: Any) -> None:
    # A response may have 10,000 partitions, mostly without errors.
    fine = 0
    for item in items:
        code = item.error_code
        if code is _NONE:
            fine += 1
        else:
            errors[code] += 1
    errors[_NONE] += fine


def _count_own(entity: Any, errors: Any) -> None:
    errors[entity.error_code] += 1


def _count_partition(entity: Any, errors: Any) -> None:
    errors[entity.partition_error_code] += 1
