"""The tab's requests to brokers, those of any client, and made only while a browser shows their answers.

A thread of its own makes them, one after the other: rendering waits a moment for the answer, and otherwise
shows the last one. The cost is bounded: a request that took long pauses for longer before its repetition, a
response that is too long is not read and not requested again soon, and the number of waiting requests is
limited.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from sparklog.node.calling.blocking import ResponseTooLargeError
from sparklog.node.calling.cluster_credentials import NO_CREDENTIALS, ClusterCredentials
from sparklog.node.clocks import monotonic_ms
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.config import ClientConfig, parse_bootstrap_servers

ANSWER_WITHIN_S: Final = 0.4
"""How long a page waits."""
REQUEST_TIMEOUT_MS: Final = 2_000
MAX_RESPONSE_BYTES: Final = 2 << 20
"""The longest response: some 40,000 groups, which take the driver a tenth of a second to parse."""
MAX_REMEMBERED: Final = 32
"""Requests whose last answer is kept."""
MAX_WAITING: Final = 8
RESTS: Final = 5
"""The pause of a request, as a multiple of its duration,"""
MAX_REST_MS: Final = 5_000
"""but at most this long,"""
TOO_LONG_REST_MS: Final = 60_000
"""unless its response was too long to be read."""

logger = logging.getLogger(__name__)

Known = TypeVar("Known")


class LastAnswer(NamedTuple, Generic[Known]):
    """An answer, and its time on the monotonic clock."""

    known: Known
    taken_ms: int


class Answer(NamedTuple, Generic[Known]):
    """The current knowledge: the last sample and its age, and why it is not newer."""

    known: Known | None
    age_ms: int | None
    failure: KafkaError | None


Look: TypeAlias = Callable[[ClusterClient, LastAnswer[Known] | None], Known]
"""Asks brokers; gets its last sample."""


@dataclass(slots=True)
class _Question:
    asking: "Future[tuple[Any, int, int]] | None" = None
    """Future of the answer, its time, and its duration."""
    last_answer: LastAnswer[Any] | None = None
    failure: KafkaError | None = None
    rests_until_ms: int = 0


class Questions:
    """A client of the cluster and its thread; `ask` belongs to one thread."""

    def __init__(
        self, bootstrap_servers: str, cluster_credentials: ClusterCredentials = NO_CREDENTIALS
    ) -> None:
        self._client = ClusterClient(
            ClientConfig(
                bootstrap_servers=parse_bootstrap_servers(bootstrap_servers),
                client_id="sparklog-ui",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                api_timeout_ms=REQUEST_TIMEOUT_MS,
                max_response_bytes=MAX_RESPONSE_BYTES,
                login=cluster_credentials.login,
                tls=cluster_credentials.tls,
            )
        )
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sparklog tab questions")
        self._questions: OrderedDict[Hashable, _Question] = OrderedDict()

    def ask(self, key: Hashable, look: "Look[Known]") -> Answer[Known]:
        """Run `look` if its pause is over, and return the sample of `key`, after a moment's wait.

        Raises:
            Exception: an error of `look` that is not a KafkaError.
        """
        question = self._questions.setdefault(key, _Question())
        self._questions.move_to_end(key)
        while len(self._questions) > MAX_REMEMBERED:
            _, forgotten = self._questions.popitem(last=False)
            if forgotten.asking is not None:
                forgotten.asking.cancel()
        _collect(question)
        # Answers for pages that were left stay uncollected, and may be old.
        waiting = sum(each.asking is not None and not each.asking.done() for each in self._questions.values())
        if question.asking is None and monotonic_ms() >= question.rests_until_ms and waiting < MAX_WAITING:
            question.asking = self._worker.submit(self._look, look, question.last_answer)
        if question.asking is not None:
            try:
                question.asking.result(ANSWER_WITHIN_S)
            except NotYetError:
                logger.debug("Brokers have not answered yet about %s", key)
            except KafkaError as error:
                logger.debug("Brokers do not answer about %s: %s", key, error)
            _collect(question)
        last_answer = question.last_answer
        if last_answer is None:
            return Answer(None, None, question.failure)
        return Answer(last_answer.known, monotonic_ms() - last_answer.taken_ms, question.failure)

    def close(self) -> None:
        """Stop; returns at once."""
        for question in self._questions.values():
            if question.asking is not None:
                question.asking.cancel()
        self._worker.submit(self._client.close)
        self._worker.shutdown(wait=False)

    def _look(self, look: "Look[Any]", before: LastAnswer[Any] | None) -> tuple[Any, int, int]:
        began_ms = monotonic_ms()
        # A restarted broker may have another address.
        self._client.find_brokers()
        known = look(self._client, before)
        taken_ms = monotonic_ms()
        return known, taken_ms, taken_ms - began_ms


def _collect(question: _Question) -> None:
    if question.asking is None or not question.asking.done():
        return
    asked, question.asking = question.asking, None
    try:
        known, taken_ms, took_ms = asked.result()
    except KafkaError as error:
        question.failure = error
        if isinstance(error, ResponseTooLargeError):
            question.rests_until_ms = monotonic_ms() + TOO_LONG_REST_MS
        return
    question.last_answer, question.failure = LastAnswer(known, taken_ms), None
    question.rests_until_ms = taken_ms + min(RESTS * took_ms, MAX_REST_MS)
