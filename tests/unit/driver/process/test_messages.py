"""Messages between driver and controller's process arrive as they were sent, and nothing else does."""

import json

import pytest

from sparklog.driver.controller.errors import DeposedError
from sparklog.driver.process.codec import MessageError, decoded, encoded
from sparklog.driver.process.errors import ControllerProcessError, error_of, failed_by
from sparklog.driver.process.machine.supervision import ShutDownBroker, StopController
from sparklog.driver.process.messages import (
    FROM_CHILD,
    FROM_DRIVER,
    AskMetrics,
    AskTab,
    ControllerState,
    FromChild,
    FromDriver,
    LogLine,
    Resize,
    Resized,
    StartController,
    TabMade,
)
from sparklog.driver.ui.machine.status import BrokerTask
from sparklog.driver.ui.machine.status_maker import BrokerPlace
from sparklog.driver.ui.tab_source import DriverEvent, MadePage, MadeTab, Observed, StageText
from sparklog.hosting import StartError
from sparklog.node.config import ConfigError
from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.protocol.errors import ErrorCode, KafkaError

TASK = BrokerTask(executor_id="driver", host="a", stage_id=3, logs=(("stderr", "http://a/"),))
PLACES = tuple(
    BrokerPlace(node_id=number, rack=f"rack-{number}", attempt=1, task=task)
    for number, task in enumerate((TASK, None))
)


@pytest.mark.parametrize(
    "message",
    [
        StartController({"a": "b"}, "/d", "f00", ((0, "rack-0"),), "id", (b"\x00\xff",), False, 20),
        ShutDownBroker(1, "line\n\x00 \u2028 ü"),
        StopController(),
        AskTab(7, Observed(PLACES, (DriverEvent("restarted", "rack-0", ""),), None)),
        AskMetrics(8, ((0, 2), (1, 0))),
        Resize(9, 3, None),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_of_the_driver_arrives_as_it_was_sent(message: FromDriver) -> None:
    """Each in JSON, whatever is in it."""
    assert decoded(encoded(message), FROM_DRIVER) == message


@pytest.mark.parametrize(
    "message",
    [
        ControllerState(
            cluster_id=None,
            lacks_voters=True,
            missing_voters=(1, 2),
            missing="waits",
            unfenced=(0,),
            registered=(0, 1),
            serves=False,
            owner_epoch=7,
            is_copied=True,
            racks=3,
            brokers_per_rack=None,
            surplus=((3, 12), (4, 0)),
            drained=(4,),
            may_restart=True,
            broker_epochs=((0, 12), (1, 17)),
        ),
        Resized(9, "too few"),
        LogLine("a", 20, "b", 1.0, "c", "d.py", 7, None),
        TabMade(7, MadeTab(MadePage("<p>", "{}"), (StageText(1, "a\nb"),))),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_of_the_process_arrives_as_it_was_sent(message: FromChild) -> None:
    """The other way."""
    assert decoded(encoded(message), FROM_CHILD) == message


@pytest.mark.parametrize(
    "data",
    [
        b"no JSON",
        b"7",
        b'["Popen", {}]',
        b'["ShutDownBroker", {"broker_id": 1}]',
        b'["ShutDownBroker", {"broker_id": "1", "reason": ""}]',
        b'["ShutDownBroker", {"broker_id": 1, "reason": "", "more": 1}]',
        b'["AskMetrics", {"number": 1, "restarts": [[1]]}]',
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """They make nothing but messages, whatever they name."""
    with pytest.raises(MessageError):
        decoded(data, FROM_DRIVER)


def test_secrets_are_not_shown() -> None:
    """A message may be logged."""
    start = StartController({"a": "password"}, "/d", "f00", (), "id", (b"salt",), False, 20)
    assert "password" not in repr(start)
    assert "f00" not in repr(start)
    assert "salt" not in repr(start)
    assert "password" in json.loads(encoded(start))[1]["configuration"].values()


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("ssl.keystore.location", "/a", "it can't be read"),
        ConfigError("a.key", None, "it is unknown"),
        TlsConfigError("ssl.keystore.location", "no such file"),
        KafkaError(ErrorCode.kafka_storage_error, "the disk is full"),
        DeposedError("another driver leads"),
        StartError("sparklog.remote.uri belongs to another application"),
        FileNotFoundError(2, "No such file"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_of_the_process_is_raised_by_its_class_with_its_text(error: Exception) -> None:
    """A user's `except` means the same, wherever the controller runs."""
    raised = error_of(failed_by(error))
    assert type(raised) is type(error)
    assert str(raised) == str(error)


def test_error_that_the_driver_does_not_know_keeps_its_name() -> None:
    """No class is looked up by a name that came."""
    raised = error_of(failed_by(ZeroDivisionError("of a figure")))
    assert isinstance(raised, ControllerProcessError)
    assert str(raised) == "ZeroDivisionError: of a figure"
