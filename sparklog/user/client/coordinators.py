"""Coordinators of groups and transactional ids: finding them, and retrying while they change.

Many can be asked at once: one request each, all those of a broker one after another on its connection, before
any answer is awaited.

A broker takes a FindCoordinator in the middle of a client's work for a sign that the client has lost its
coordinator, and delays its answer until it has heard of the change (`executor/api/find_coordinator.py`). A
client with a new name needs no such request: the coordinator is the leader of the name's partition
(`expect`). FindCoordinator follows when a presumed coordinator refuses or is gone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

from sparklog.node.metadata.partition_for import COORDINATORS_TOPICS, CoordinatorType, partition_for
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.client.broker_requests import ask_side_by_side
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.topic_descriptions import described_leaders
from sparklog.user.client.topics import Leader

_MOST_REMEMBERED: Final = 10_000
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
    }
)
"""Errors after which the coordinator may be another broker."""


class CoordinatorClient:
    """The known coordinators; shares the connections of `cluster`."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._found: dict[tuple[CoordinatorType, str], BrokerId] = {}
        self._leaders: dict[CoordinatorType, Mapping[int, Leader | None]] = {}
        """Leaders of the partitions of the coordinators' topics, until one of them refuses to coordinate."""

    def ask(
        self,
        kind: CoordinatorType,
        key: str,
        request: Any,
        error_of: Callable[[Any], ErrorCode],
        *,
        doing: str,
    ) -> Any:
        """Return the coordinator's answer, repeating the request while `error_of` it is retriable.

        Raises:
            ApiTimeoutError: it could not be asked within `api_timeout_ms`.
        """
        return self.ask_all(kind, {key: request}, error_of, doing=doing)[key]

    def ask_once(
        self, kind: CoordinatorType, key: str, request: Any, error_of: Callable[[Any], ErrorCode]
    ) -> Any:
        """Return the coordinator's answer.

        Raises:
            KafkaError: there is none, or it is retriable.
        """
        answers: dict[str, Any] = {}
        failure = self._ask_once(kind, {key: request}, error_of, answers)
        if failure is not None:
            raise failure
        return answers[key]

    def ask_all(
        self,
        kind: CoordinatorType,
        requests: Mapping[str, Any],
        error_of: Callable[[Any], ErrorCode],
        *,
        doing: str,
    ) -> dict[str, Any]:
        """Return the answer for each key, repeated as by `ask`.

        Raises:
            ApiTimeoutError: the coordinators of some keys did not answer within `api_timeout_ms`.
        """
        answers: dict[str, Any] = {}

        def attempt() -> dict[str, Any]:
            left = [key for key in requests if key not in answers]
            failure = self._ask_once(kind, {key: requests[key] for key in left}, error_of, answers)
            if failure is not None:
                raise failure
            return answers

        return self._cluster.retry(doing, attempt)

    def _ask_once(
        self,
        kind: CoordinatorType,
        requests: Mapping[str, Any],
        error_of: Callable[[Any], ErrorCode],
        answers: dict[str, Any],
    ) -> KafkaError | None:
        """Add final answers to `answers`; return one of the other failures, if there was any."""
        found = self._find(kind, list(requests))
        asked = [(found[key], request) for key, request in requests.items()]
        failure: KafkaError | None = None
        for key, answer in zip(requests, ask_side_by_side(self._cluster, asked), strict=True):
            refusal = self.heard(kind, key, answer, error_of)
            if refusal is None:
                answers[key] = answer
            else:
                failure = refusal
        return failure

    def broker_of(self, kind: CoordinatorType, key: str) -> BrokerId:
        """Return the coordinator of a key.

        Raises:
            KafkaError: it is unknown at present, or the request is refused.
        """
        return self._find(kind, [key])[key]

    def heard(
        self, kind: CoordinatorType, key: str, answer: Any, error_of: Callable[[Any], ErrorCode]
    ) -> KafkaError | None:
        """Return the error if a coordinator, perhaps another one, has to be asked again; else None."""
        if isinstance(answer, KafkaError):
            self._forget(kind, key)
            return answer
        error_code = error_of(answer)
        if not error_code.retriable:
            return None
        refusal = KafkaError(error_code, f"broker {self._found.get((kind, key))} coordinates {key}")
        if error_code in _ELSEWHERE:
            self._forget(kind, key)
        return refusal

    def expect(self, keys: Mapping[CoordinatorType, Sequence[str]]) -> None:
        """Presume the leaders of the keys' partitions as their coordinators, if the leaders are visible.

        A broker is asked for the leaders once, and again after one of them has refused to coordinate.
        """
        for kind, unknown in self._unknown(keys).items():
            leaders = self._leaders_of(kind)
            # A leader without a known address is left to FindCoordinator, which returns the address.
            reachable = self._cluster.broker_ids() if leaders else ()
            for key in unknown if leaders else ():
                leader = leaders.get(partition_for(key, len(leaders)))
                if leader is not None and leader.broker_id in reachable:
                    self._found[(kind, key)] = leader.broker_id

    def _leaders_of(self, kind: CoordinatorType) -> Mapping[int, Leader | None]:
        """Return the leaders of the partitions of a coordinators' topic; empty if they are not visible."""
        if (known := self._leaders.get(kind)) is not None:
            return known
        try:
            self._leaders[kind] = described_leaders(self._cluster, COORDINATORS_TOPICS[kind])
        except KafkaError as error:
            if error.error_code is not ErrorCode.topic_authorization_failed:
                return {}  # FindCoordinator creates the topic
            self._leaders[kind] = {}
        return self._leaders[kind]

    def find(self, keys: Mapping[CoordinatorType, Sequence[str]]) -> None:
        """Find the unknown coordinators of keys, all at once.

        A broker that is asked during work delays its answer, since the coordinator may just have failed.

        Raises:
            KafkaError: some are unknown at present, or the request is refused.
        """
        if not (unknown := self._unknown(keys)):
            return
        broker_id, _ = self._cluster.any_channel()
        asked = [
            (broker_id, FindCoordinatorRequest(key_type=int(kind), coordinator_keys=tuple(each)))
            for kind, each in unknown.items()
        ]
        for kind, answer in zip(unknown, ask_side_by_side(self._cluster, asked), strict=True):
            if isinstance(answer, KafkaError):
                raise answer
            for found in answer.coordinators:
                if found.error_code is not ErrorCode.none:
                    raise KafkaError(
                        found.error_code, found.error_message or f"{found.key} has no coordinator"
                    )
                self._cluster.broker_named(found.node_id, (found.host, found.port))
                self._found[(kind, found.key)] = found.node_id

    def _forget(self, kind: CoordinatorType, key: str) -> None:
        self._found.pop((kind, key), None)
        self._leaders.pop(kind, None)

    def _unknown(self, keys: Mapping[CoordinatorType, Sequence[str]]) -> dict[CoordinatorType, list[str]]:
        """Return the keys with unknown coordinators; makes room to remember them."""
        if len(self._found) + sum(map(len, keys.values())) > _MOST_REMEMBERED:
            self._found.clear()
        unknown = {
            kind: [key for key in each if (kind, key) not in self._found] for kind, each in keys.items()
        }
        return {kind: each for kind, each in unknown.items() if each}

    def _find(self, kind: CoordinatorType, keys: Sequence[str]) -> dict[str, BrokerId]:
        self.find({kind: keys})
        return {key: self._found[(kind, key)] for key in keys}
