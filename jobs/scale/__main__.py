"""The command: `sparklog-scale BOOTSTRAP --racks N --brokers-per-rack M` changes the size of a running
cluster.

It waits until the cluster has that size, for --timeout seconds at most, and prints the progress; Ctrl-C and
the time-out end the command, not the change. The command with the former numbers gives a change up. Without a
number it lists the brokers.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from sparklog.jobs.command_config import add_command_config, check_answers, command_client
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.cluster_size import Members, alter_size, configured_size, members

POLL_S: Final = 0.5
GIVEN_UP_AFTER_S: Final = 3.0
"""How long another size must be seen: a broker may be asked that has not heard of the change yet."""


class SizeGivenUpError(Exception):
    """Another size was configured before the cluster had this one."""


class SizeNotReachedError(Exception):
    """The cluster did not have the size in time."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparklog-scale", description=__doc__)
    parser.add_argument("bootstrap", metavar="BOOTSTRAP", help="host:port, several with commas")
    parser.add_argument("--racks", type=_positive, metavar="N", help="the number of racks")
    parser.add_argument("--brokers-per-rack", type=_positive, metavar="M", help="the brokers of each rack")
    parser.add_argument(
        "--timeout", type=_positive, metavar="SECONDS", help="the longest wait; no bound if omitted"
    )
    parser.add_argument("--no-wait", action="store_true", help="end when the cluster has accepted the size")
    add_command_config(parser)
    options = parser.parse_args(arguments)
    try:
        config = command_client(options.bootstrap, options.command_config)
        check_answers(config)
        with ClusterClient(config) as cluster:
            if options.racks is None and options.brokers_per_rack is None:
                print(_described(members(cluster)))
                return 0
            change = SizeChange(options.racks, options.brokers_per_rack)
            alter_size(cluster, change)
            if not options.no_wait:
                _wait(cluster, change, options.timeout)
    except (KafkaError, SizeGivenUpError, SizeNotReachedError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("the cluster goes on with it", file=sys.stderr)
        return 130
    return 0


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _wait(cluster: ClusterClient, change: SizeChange, timeout_s: int | None) -> None:
    """Print the progress until the cluster has its configured size.

    Raises:
        SizeGivenUpError: the configuration has had another size for `GIVEN_UP_AFTER_S`.
        SizeNotReachedError: the cluster does not have its size after `timeout_s`.
    """
    printed = ""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    changed_s: float | None = None
    while True:
        configured, now = configured_size(cluster), members(cluster)
        wanted = configured.size(now.racks)
        if not change.is_in(wanted):
            changed_s = time.monotonic() if changed_s is None else changed_s
            if time.monotonic() - changed_s > GIVEN_UP_AFTER_S:
                raise SizeGivenUpError(
                    f"the cluster's size is {wanted} by now, since another change came: the command ends, "
                    "that change goes on"
                )
        else:
            changed_s = None
            surplus = configured.surplus(now.racks)
            line = f"{_described(now)}; wanted are {wanted}"
            if surplus:
                leaving = (f"{each} ({now.replicas.get(each, 0)} replicas)" for each in sorted(surplus))
                line += f"; leaving: {', '.join(leaving)}"
            if line != printed:
                print(line, flush=True)
                printed = line
            if not surplus and len(now.racks.keys() - now.fenced) == wanted.brokers:
                return
        if deadline_s is not None and time.monotonic() > deadline_s:
            raise SizeNotReachedError(
                f"the cluster has not had its size of {wanted} within {timeout_s} s, and goes on with it; "
                "the former numbers give it up"
            )
        time.sleep(POLL_S)


def _described(now: Members) -> str:
    by_rack: dict[str, list[str]] = {}
    for broker_id, rack in sorted(now.racks.items()):
        away = " (away)" if broker_id in now.fenced else ""
        by_rack.setdefault(rack or "no rack", []).append(f"{broker_id}{away}")
    racks = ", ".join(f"{rack}: {' '.join(brokers)}" for rack, brokers in by_rack.items())
    return f"{len(now.racks)} brokers ({racks})"


if __name__ == "__main__":
    sys.exit(main())
