"""Asks coordinators: finds who coordinates a group or a transactional id, and tries again while that changes.

Many may be asked at once: one request each, all those of a broker after one another on its connection, before
any answer is waited for.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest

from sparklog.client.broker_requests import ask_side_by_side
from sparklog.client.cluster_client import ClusterClient
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import BrokerId

__all__ = ["CoordinatorKind", "Coordinators"]

_MOST_REMEMBERED: Final = 10_000
_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
    }
)
"""After these it may be another broker."""


class CoordinatorKind(IntEnum):
    """What a key is, as FindCoordinator has it."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """Who coordinates what, as far as it is known; it shares the connections of `cluster`."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._found: dict[tuple[CoordinatorKind, str], BrokerId] = {}

    def ask(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Any,
        error_of: Callable[[Any], ErrorCode],
        *,
        doing: str,
    ) -> Any:
        """Return the coordinator's answer, asked again while `error_of` it is one to try again after.

        Raises:
            ApiTimeoutError: it could not be asked within `api_timeout_ms`.
        """
        return self.ask_all(kind, {key: request}, error_of, doing=doing)[key]

    def ask_all(
        self,
        kind: CoordinatorKind,
        requests: Mapping[str, Any],
        error_of: Callable[[Any], ErrorCode],
        *,
        doing: str,
    ) -> dict[str, Any]:
        """Return the answer for each key, as `ask` does.

        Raises:
            ApiTimeoutError: some could not be asked within `api_timeout_ms`.
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
        kind: CoordinatorKind,
        requests: Mapping[str, Any],
        error_of: Callable[[Any], ErrorCode],
        answers: dict[str, Any],
    ) -> KafkaError | None:
        """Put what is final into `answers`; return one of the other failures, if there was any."""
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

    def broker_of(self, kind: CoordinatorKind, key: str) -> BrokerId:
        """Return who coordinates a key.

        Raises:
            KafkaError: it cannot be told at present, or is refused.
        """
        return self._find(kind, [key])[key]

    def heard(
        self, kind: CoordinatorKind, key: str, answer: Any, error_of: Callable[[Any], ErrorCode]
    ) -> KafkaError | None:
        """Return why a coordinator is to be asked again, after what may be another one; None if it is not."""
        if isinstance(answer, KafkaError):
            self._found.pop((kind, key), None)
            return answer
        error_code = error_of(answer)
        if not error_code.retriable:
            return None
        refusal = KafkaError(error_code, f"broker {self._found.get((kind, key))} coordinates {key}")
        if error_code in _ELSEWHERE:
            self._found.pop((kind, key), None)
        return refusal

    def find(self, keys: Mapping[CoordinatorKind, Sequence[str]]) -> None:
        """Learn who coordinates what is not known yet; all are looked for at once.

        A broker that is asked amid work waits before it answers, as a coordinator may just have been lost.

        Raises:
            KafkaError: of some it cannot be told at present, or is refused.
        """
        unknown = self._unknown(keys)
        if len(self._found) + sum(map(len, unknown.values())) > _MOST_REMEMBERED:
            self._found.clear()
            unknown = self._unknown(keys)
        if not unknown:
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
                        found.error_code, found.error_message or f"nobody coordinates {found.key}"
                    )
                self._cluster.broker_named(found.node_id, (found.host, found.port))
                self._found[(kind, found.key)] = found.node_id

    def _unknown(self, keys: Mapping[CoordinatorKind, Sequence[str]]) -> dict[CoordinatorKind, list[str]]:
        unknown = {
            kind: [key for key in each if (kind, key) not in self._found] for kind, each in keys.items()
        }
        return {kind: each for kind, each in unknown.items() if each}

    def _find(self, kind: CoordinatorKind, keys: Sequence[str]) -> dict[str, BrokerId]:
        self.find({kind: keys})
        return {key: self._found[(kind, key)] for key in keys}
