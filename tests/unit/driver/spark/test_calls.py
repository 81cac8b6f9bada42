"""Calls to the JVM whose connection an interrupt of somebody else's closes."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from sparklog.driver.spark.calls import answered

LOST = Py4JError("An error occurred while calling o150.get")
"""What py4j raises, having tried twice, when the JVM has closed the connection under a call."""
LOST_AT_ONCE = Py4JNetworkError("Answer from Java side is empty")
"""And when it has closed it before py4j had made itself known."""


def test_call_whose_connection_is_lost_is_made_again() -> None:
    """The job that it waits for goes on; to take it for failed was to start its brokers twice."""
    outcomes: list[object] = [LOST, LOST_AT_ONCE, LOST, "the answer"]

    def call() -> object:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert answered(call) == "the answer"


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("An error occurred while trying to connect to the Java server (127.0.0.1:1)"),
        ConnectionRefusedError("nobody listens"),
        Py4JError("An error occurred while calling o22.gett. Trace:\npy4j.Py4JException: no such method"),
        ValueError("something else"),
    ],
)
def test_call_that_fails_by_itself_is_not(error: Exception) -> None:
    """Nobody answers for a JVM that is gone."""
    calls = []

    def call() -> None:
        calls.append(1)
        raise error

    with pytest.raises(type(error)) as raised:
        answered(call)
    assert raised.value is error
    assert len(calls) == 1
