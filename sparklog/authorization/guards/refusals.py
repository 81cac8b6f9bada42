"""How each API answers that a whole request is refused (`getErrorResponse` of Kafka's request classes).

Most say it once, in the response's own error code; those here say it of each thing that was asked for.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from sparklog.authorization.guards.guard import answer_of, filled, item_type, message_of
from sparklog.errors import ErrorCode
from sparklog.wire.apis import ApiKey, response_type
from sparklog.wire.requests import Request


def refused(request: Request, error_code: ErrorCode) -> Any:
    """Return the answer to a request that is refused as a whole."""
    refuse = _REFUSALS.get(request.api_key)
    said = {"error_code": error_code, "error_message": message_of(error_code)}
    items = {} if refuse is None else refuse(request, _Type(request), said)
    return answer_of(request, **said, **items)


class _Type:
    """Makes items of the response to a request."""

    def __init__(self, request: Request) -> None:
        self._response_type = response_type(request.api_key, request.api_version)

    def __call__(self, *path: str, **known: Any) -> Any:
        return filled(item_type(self._response_type, *path), **known)


_Said = Mapping[str, Any]
_Items = dict[str, Any]


def _topics(field: str, request: Request, make: _Type, said: _Said) -> _Items:
    """Say it of the partitions of the request's topics, in the response's field of that name."""
    return {
        field: tuple(
            make(
                field,
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partitions=_rows(
                    make,
                    (field, "partitions"),
                    "partition_index",
                    (partition.partition_index for partition in topic.partitions),
                    said,
                ),
            )
            for topic in request.body.topics
        )
    }


def _produce(request: Request, make: _Type, said: _Said) -> _Items:
    return {
        "responses": tuple(
            make(
                "responses",
                name=getattr(topic, "name", ""),
                topic_id=getattr(topic, "topic_id", None),
                partition_responses=tuple(
                    make(
                        "responses",
                        "partition_responses",
                        index=data.index,
                        base_offset=-1,
                        log_append_time=None,
                        **said,
                    )
                    for data in topic.partition_data
                ),
            )
            for topic in request.body.topic_data
        )
    }


def _add_partitions_to_txn(request: Request, make: _Type, said: _Said) -> _Items:
    if request.api_version >= 4:
        return {}
    field = "results_by_topic_v3_and_below"
    return {
        field: tuple(
            make(
                field,
                name=topic.name,
                results_by_partition=tuple(
                    make(
                        field,
                        "results_by_partition",
                        partition_index=partition,
                        partition_error_code=said["error_code"],
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.body.v3_and_below_topics
        )
    }


def _write_txn_markers(request: Request, make: _Type, said: _Said) -> _Items:
    path = ("markers", "topics", "partitions")
    return {
        "markers": tuple(
            make(
                "markers",
                producer_id=marker.producer_id,
                topics=tuple(
                    make(
                        "markers",
                        "topics",
                        name=topic.name,
                        partitions=_rows(make, path, "partition_index", topic.partition_indexes, said),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.body.markers
        )
    }


def _alter_replica_log_dirs(request: Request, make: _Type, said: _Said) -> _Items:
    path = ("results", "partitions")
    return {
        "results": tuple(
            make(
                "results",
                topic_name=topic.name,
                partitions=_rows(make, path, "partition_index", topic.partitions, said),
            )
            for directory in request.body.dirs
            for topic in directory.topics
        )
    }


def _elect_leaders(request: Request, make: _Type, said: _Said) -> _Items:
    path = ("replica_election_results", "partition_result")
    return {
        "replica_election_results": tuple(
            make(
                "replica_election_results",
                topic=topic.topic,
                partition_result=_rows(make, path, "partition_id", topic.partitions, said),
            )
            for topic in request.body.topic_partitions or ()
        )
    }


def _list_reassignments(request: Request, make: _Type, said: _Said) -> _Items:
    """Name what was asked for, as Kafka does: an answer has one error for all of it."""
    return {
        "topics": tuple(
            make(
                "topics",
                name=topic.name,
                partitions=tuple(
                    make("topics", "partitions", partition_index=number) for number in topic.partition_indexes
                ),
            )
            for topic in request.body.topics or ()
        )
    }


def _alter_client_quotas(request: Request, make: _Type, said: _Said) -> _Items:
    return {
        "entries": tuple(
            make(
                "entries",
                entity=tuple(
                    make("entries", "entity", entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ),
                **said,
            )
            for entry in request.body.entries
        )
    }


def _describe_scram_credentials(request: Request, make: _Type, said: _Said) -> _Items:
    return {"results": (make("results", **said),) * len(request.body.users or ())}


def _alter_scram_credentials(request: Request, make: _Type, said: _Said) -> _Items:
    users = dict.fromkeys(change.name for change in (*request.body.deletions, *request.body.upsertions))
    return {"results": tuple(make("results", user=user, **said) for user in users)}


def _create_acls(request: Request, make: _Type, said: _Said) -> _Items:
    return {"results": (make("results", **said),) * len(request.body.creations)}


def _delete_acls(request: Request, make: _Type, said: _Said) -> _Items:
    return {"filter_results": (make("filter_results", **said),) * len(request.body.filters)}


def _describe_client_quotas(request: Request, make: _Type, said: _Said) -> _Items:
    return {"entries": None}


def _no_producer(request: Request, make: _Type, said: _Said) -> _Items:
    return {"producer_id": -1, "producer_epoch": -1}


def _no_coordinator(request: Request, make: _Type, said: _Said) -> _Items:
    nobody = {"node_id": -1, "host": "", "port": -1}
    if request.api_version < 4:
        return nobody
    keys = request.body.coordinator_keys
    return {"coordinators": tuple(make("coordinators", key=key, **nobody, **said) for key in keys)}


def _not_a_member(request: Request, make: _Type, said: _Said) -> _Items:
    # As Kafka's JoinGroupRequest: no generation, and nobody of any name.
    return {"generation_id": -1, "member_id": "", "leader": "", "protocol_name": _no_protocol(request)}


def _no_protocol(request: Request) -> str | None:
    return None if request.api_version >= 7 else ""


def _rows(
    make: _Type, path: tuple[str, ...], index_field: str, indexes: Iterable[int], said: _Said
) -> tuple[Any, ...]:
    return tuple(make(*path, **{index_field: index}, **said) for index in indexes)


_REFUSALS: Final[Mapping[ApiKey, Callable[[Request, _Type, _Said], _Items]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _produce,
        ApiKey.OFFSET_COMMIT: partial(_topics, "topics"),
        ApiKey.TXN_OFFSET_COMMIT: partial(_topics, "topics"),
        ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
        ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
        ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_replica_log_dirs,
        ApiKey.ELECT_LEADERS: _elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: partial(_topics, "responses"),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
        ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _describe_client_quotas,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram_credentials,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram_credentials,
        ApiKey.CREATE_ACLS: _create_acls,
        ApiKey.DELETE_ACLS: _delete_acls,
        ApiKey.INIT_PRODUCER_ID: _no_producer,
        ApiKey.FIND_COORDINATOR: _no_coordinator,
        ApiKey.JOIN_GROUP: _not_a_member,
    }
)
