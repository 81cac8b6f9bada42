"""Kills a broker that was stopped (SIGSTOP) and not continued.

A frozen leader is worse than a dead one. Other brokers lead its partitions as soon as its lease has expired,
but its clients wait on connections that the kernel keeps open, for as long as their own request timeouts: a
minute with librdkafka's default. Only a process of the same machine can end them. So each broker has a
watchdog: a small process that asks the kernel ten times a second whether the broker is stopped, and kills it
after `limit` of consecutive answers that it is.

That is evidence, not a lack of it: a broker that is only slow, has no processor, waits for its disk or is
being debugged is in another state and left alone, so the limit may be much shorter than the broker's session.
Answers count, not time, so a watchdog that is starved itself, or whose machine was suspended, kills later and
never sooner.

Run as a script, by path and with nothing but the standard library, so that it costs little: `python -I -S
watchdog.py <process id> <limit in milliseconds>`; it ends when its standard input does.
"""

import os
import select
import signal
import sys
from pathlib import Path
from typing import Final

LOOK_MS: Final = 100


def is_stopped(process_id: int) -> bool:
    """Return whether a signal has stopped the process.

    Raises:
        OSError: the process has ended, or there is no /proc.
    """
    # The second field is the command's name, in parentheses, and may contain any character.
    return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def main() -> None:
    process_id, limit_ms = int(sys.argv[1]), int(sys.argv[2])
    stopped_looks = 0
    poll = select.poll()
    poll.register(sys.stdin.fileno(), select.POLLIN)
    while os.getppid() == process_id:
        if poll.poll(LOOK_MS):
            return
        try:
            stopped_looks = stopped_looks + 1 if is_stopped(process_id) else 0
        except OSError:  # it has ended
            return
        if stopped_looks * LOOK_MS >= limit_ms:
            print(
                f"broker process {process_id} has been stopped for {limit_ms} ms and is killed: "
                "its clients would wait for it",
                file=sys.stderr,
            )
            os.kill(process_id, signal.SIGKILL)
            return


if __name__ == "__main__":
    main()
