"""What the tab asks brokers: when somebody looks, for a moment, and no more than they bear."""

import socket
import threading
from collections.abc import Iterator

import pytest

from sparklog.driver.ui import questions
from sparklog.driver.ui.pages.remarks import lacking, said_of
from sparklog.driver.ui.questions import Answer, LastAnswer, Questions
from sparklog.node.calling.blocking import ResponseTooLargeError
from sparklog.protocol.errors import ErrorCode, KafkaError
from sparklog.user.client.cluster_client import ClusterClient
from tests.cluster import wait_for


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Questions]:
    """Questions to a cluster that says where its brokers are, and is asked nothing else here."""
    monkeypatch.setattr(ClusterClient, "find_brokers", lambda _: None)
    # The thread that asks may get no processor for a moment.
    monkeypatch.setattr(questions, "ANSWER_WITHIN_S", 30)
    asking = Questions("127.0.0.1:1")
    yield asking
    asking.close()


def test_answer_that_takes_long_holds_no_page_up(asking: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that hangs is when somebody looks."""
    monkeypatch.setattr(questions, "ANSWER_WITHIN_S", 0.01)
    answers, looks = threading.Event(), []

    def look(_: ClusterClient, before: LastAnswer[int] | None) -> int:
        looks.append(before)
        answers.wait(10)
        return 7

    assert asking.ask("slow", look) == Answer(None, None, None)
    assert asking.ask("slow", look) == Answer(None, None, None)
    answers.set()
    wait_for(lambda: asking.ask("slow", look).known == 7, "the answer")
    assert looks == [None]  # it is asked once at a time, and rests


def test_pages_that_were_left_before_their_answers_came_take_no_place(
    asking: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was looked at once, while brokers were slow; after eight of them no new one was ever asked for."""
    monkeypatch.setattr(questions, "ANSWER_WITHIN_S", 0.01)
    answers = threading.Event()

    def look(*_: object) -> int:
        answers.wait(10)
        return 7

    for number in range(questions.MAX_WAITING):
        asking.ask(number, look)
    answers.set()
    wait_for(lambda: asking.ask("another", look).known == 7, "an answer of its own")


def test_answer_is_given_to_the_next_look(asking: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates come from two of them."""
    monkeypatch.setattr(questions, "RESTS", 0)
    assert asking.ask("a", lambda _, before: (before.known if before else 0) + 1).known == 1
    assert asking.ask("a", lambda _, before: (before.known if before else 0) + 1).known == 2


def test_failure_leaves_what_was_known_before(asking: Questions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old figures that say that they are old are better than none."""
    monkeypatch.setattr(questions, "RESTS", 0)
    failure = KafkaError(ErrorCode.network_exception, "gone")

    def fail(*_: object) -> int:
        raise failure

    asking.ask("a", lambda *_: 7)
    answer = asking.ask("a", fail)
    assert (answer.known, answer.failure) == (7, failure)
    answer = asking.ask("a", lambda *_: 8)
    assert (answer.known, answer.failure) == (8, None)


def test_answer_that_is_too_long_is_not_asked_for_again_soon(asking: Questions) -> None:
    """A million groups are work for their coordinators each time, and nobody reads the answer."""
    looks = []

    def look(*_: object) -> int:
        looks.append(1)
        raise ResponseTooLargeError("broker:9092", 50 << 20, questions.MAX_RESPONSE_BYTES)

    for _ in range(3):
        answer = asking.ask("groups", look)
        assert answer.known is None
        assert "more than this page reads" in (lacking(answer) or "")
        assert "alert" in (said_of(answer) or "")
    assert looks == [1]


def test_longer_answer_than_is_read_is_refused_by_its_length() -> None:
    """The memory for it is never taken."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall((1 << 30).to_bytes(4, "big"))

        threading.Thread(target=answer, daemon=True).start()
        asking = Questions(f"127.0.0.1:{server.getsockname()[1]}")
        try:
            failures = []
            wait_for(
                lambda: failures.append(asking.ask("a", lambda *_: 1).failure) or failures[-1], "a failure"
            )
            assert isinstance(failures[-1], ResponseTooLargeError)
        finally:
            asking.close()


def test_pages_that_nobody_looks_at_any_more_are_forgotten(asking: Questions) -> None:
    """Somebody may click through all groups there are."""
    for number in range(questions.MAX_REMEMBERED * 2):
        assert asking.ask(number, lambda *_: "known").known == "known"
    assert len(asking._questions) == questions.MAX_REMEMBERED


def test_questions_that_are_forgotten_wait_no_more(
    asking: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for one page after the other while brokers hang has nobody ask them all afterwards."""
    monkeypatch.setattr(questions, "ANSWER_WITHIN_S", 0.001)
    answers, looks = threading.Event(), []

    def look(*_: object) -> int:
        looks.append(None)
        answers.wait(10)
        return 7

    for number in range(10 * questions.MAX_REMEMBERED):
        asking.ask(number, look)
    answers.set()
    wait_for(lambda: asking.ask("last", look).known == 7, "the last answer")
    assert len(looks) <= questions.MAX_WAITING + 2
