"""The cleaner process: one request per line on standard input, one answer per line on standard output.

It runs at low priority (nice). It ends at the end of its standard input, which the broker closes on purpose
or by dying: no other process would stop it.
"""

import json
import os
import signal
import sys
from queue import SimpleQueue
from threading import Thread
from typing import Final

from sparklog.node.storage.cleaning.cleaner import clean
from sparklog.node.storage.cleaning.request import CleaningRequest
from sparklog.protocol.errors import KafkaError

_NICENESS: Final = 10


def main() -> None:
    """Clean by request until standard input ends."""
    # Ctrl+C is meant for the application; the broker ends its cleaners.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    requests: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_take_requests, args=(requests,), daemon=True).start()
    while True:
        sys.stdout.buffer.write(_answer(requests.get()))
        sys.stdout.buffer.flush()


def _take_requests(requests: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


def _answer(line: bytes) -> bytes:
    try:
        return clean(CleaningRequest.decode(line)).encode()
    except (OSError, KafkaError, ValueError, MemoryError) as error:
        errno = error.errno if isinstance(error, OSError) else None
        return json.dumps({"error": str(error) or repr(error), "errno": errno}).encode() + b"\n"


if __name__ == "__main__":
    main()
