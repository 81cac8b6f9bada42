"""Stops running clusters at the end of the interpreter.

`atexit` comes too late: by then concurrent.futures has ended the threads with which the controller does its
file work. It does so when the main thread has ended, by a function of `threading` that runs the callbacks
registered last first. The user's threads that outlive the main thread may need the cluster, so it is then
left to `atexit` all the same.
"""

import atexit
import threading
from concurrent.futures import thread as pools
from typing import Final, Protocol


class _Stoppable(Protocol):
    def stop(self) -> None: ...


_running: Final[set[_Stoppable]] = set()
_registered: Final = threading.Event()


def stop_at_exit(cluster: _Stoppable) -> None:
    """Stop the cluster when the interpreter ends."""
    _running.add(cluster)
    if not _registered.is_set():
        _registered.set()
        atexit.register(_stop_all)
        threading._register_atexit(_stop_all_unless_used)  # type: ignore[attr-defined]


def forget_at_exit(cluster: _Stoppable) -> None:
    """Forget a cluster that has stopped."""
    _running.discard(cluster)


def _stop_all_unless_used() -> None:
    pooled = pools._threads_queues
    ends = (threading.main_thread(), threading.current_thread())
    if all(each.daemon or each in ends or each in pooled for each in threading.enumerate()):
        _stop_all()


def _stop_all() -> None:
    for cluster in tuple(_running):
        cluster.stop()
