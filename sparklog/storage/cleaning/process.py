"""The process that cleans: a request a line on its standard input, an answer a line on its standard output.

It gives way to everything else on its machine (nice), and ends with its standard input, which is when the
broker that started it says so or is gone, however that ended: nobody else would ever stop it.
"""

import json
import os
import signal
import sys
from queue import SimpleQueue
from threading import Thread
from typing import Final

from sparklog.errors import KafkaError
from sparklog.storage.cleaning.cleaner import clean
from sparklog.storage.cleaning.request import CleaningRequest

_NICENESS: Final = 10


def main() -> None:
    """Clean what is asked for, until nobody asks."""
    # Whoever presses Ctrl+C means the application; the broker ends its cleaners.
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
