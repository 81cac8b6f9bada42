"""What a broker may suffer, as the failover benchmark does it to a process.

A broker of ours is a Python worker; its parent is Spark's Python daemon, and the daemon's is an executor's
JVM. Apache Kafka's broker is one process, so some faults are ours alone.
"""

import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import psutil


@dataclass(frozen=True, slots=True)
class Fault:
    """A signal to a broker's process or to one that it hangs on."""

    description: str
    number: signal.Signals
    target: Callable[[psutil.Process], psutil.Process]
    """The process to be signalled, given the broker's."""
    needs_executor: bool = False
    """Whether only a broker inside Spark can suffer it."""
    is_lifted: bool = False
    """Whether the broker's process goes on when that is over, unless somebody has ended it meanwhile."""

    def strike(self, broker: psutil.Process) -> None:
        """Do it to the broker."""
        self.target(broker).send_signal(self.number)

    def lift(self, broker: psutil.Process) -> None:
        """Let the broker go on if it was stopped and is still there."""
        with contextlib.suppress(psutil.NoSuchProcess):
            broker.send_signal(signal.SIGCONT)


def _itself(broker: psutil.Process) -> psutil.Process:
    return broker


def _daemon(broker: psutil.Process) -> psutil.Process:
    parent = broker.parent()
    assert parent is not None, "Spark's daemon has started the worker"
    return parent


def _executor(broker: psutil.Process) -> psutil.Process:
    return _daemon(_daemon(broker))


FAULTS: Final[Mapping[str, Fault]] = {
    "kill": Fault("SIGKILL of a broker", signal.SIGKILL, _itself),
    "kill-executor": Fault("SIGKILL of an executor", signal.SIGKILL, _executor, needs_executor=True),
    "kill-daemon": Fault("SIGKILL of a Python daemon", signal.SIGKILL, _daemon, needs_executor=True),
    "terminate": Fault("SIGTERM of a broker", signal.SIGTERM, _itself),
    "decommission": Fault("decommission of an executor", signal.SIGPWR, _executor, needs_executor=True),
    "freeze": Fault("SIGSTOP of a broker", signal.SIGSTOP, _itself, is_lifted=True),
}
