"""Requests to several brokers at once, made once or repeated until the final answer."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from sparklog.protocol.errors import KafkaError
from sparklog.protocol.types import BrokerId
from sparklog.user.client.cluster_client import ClusterClient


class Answers(NamedTuple):
    """Responses by broker, and the failures of brokers that did not answer."""

    responses: dict[BrokerId, Any]
    failures: dict[BrokerId, KafkaError]


class Question(Protocol):
    """A request to the broker that is in charge of its subject, such as a leader or a coordinator."""

    @property
    def request(self) -> Any:
        """The request; it may be sent more than once."""

    def broker_id(self) -> BrokerId:
        """Return the broker in charge.

        Raises:
            KafkaError: there is none at present, or it is unknown.
        """

    def hear(self, answer: Any | KafkaError) -> KafkaError | None:
        """Take in an answer or a failure; return the error if the question has to be repeated."""


def ask_brokers(cluster: ClusterClient, requests: Mapping[BrokerId, Any]) -> Answers:
    """Send each broker its request, then wait for all answers; disconnect from brokers that fail."""
    answers = Answers({}, {})
    asked = list(requests.items())
    for (broker_id, _), answer in zip(asked, ask_side_by_side(cluster, asked), strict=True):
        if isinstance(answer, KafkaError):
            answers.failures[broker_id] = answer
        else:
            answers.responses[broker_id] = answer
    return answers


def ask_side_by_side(
    cluster: ClusterClient, requests: Sequence[tuple[BrokerId, Any]]
) -> list[Any | KafkaError]:
    """Send all requests, those of a broker one after another, then wait for all answers.

    A broker that fails is disconnected; the failure is then the answer to each of its requests.
    """
    failures: dict[BrokerId, KafkaError] = {}
    for broker_id, request in requests:
        if broker_id in failures:
            continue
        try:
            cluster.channel(broker_id).send(request)
        except KafkaError as error:
            failures[broker_id] = error
            cluster.disconnect(broker_id)
    answers: list[Any | KafkaError] = []
    for broker_id, _ in requests:
        if broker_id not in failures:
            try:
                answers.append(cluster.channel(broker_id).receive())
                continue
            except KafkaError as error:
                failures[broker_id] = error
                cluster.disconnect(broker_id)
        answers.append(failures[broker_id])
    return answers


def ask_until_answered(cluster: ClusterClient, questions: Iterable[Question], *, doing: str) -> None:
    """Ask all questions, side by side, until each has its answer.

    Raises:
        ApiTimeoutError: some had none within `api_timeout_ms`.
        KafkaError: a failure that is not retriable.
    """
    left = list(questions)

    def attempt() -> None:
        asked = [(each.broker_id(), each.request) for each in left]
        heard = [
            each.hear(answer) for each, answer in zip(left, ask_side_by_side(cluster, asked), strict=True)
        ]
        left[:] = [each for each, failure in zip(left, heard, strict=True) if failure is not None]
        for failure in heard:
            if failure is not None:
                raise failure

    cluster.retry(doing, attempt)
