"""The command: `sparklog-sinks BOOTSTRAP` lists, `sparklog-sinks BOOTSTRAP --end SINK` ends.

It ends the open transactions of a query that will not be restarted, or of a batch write whose driver died:
decided ones are committed, the rest aborted.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from sparklog.jobs.command_config import add_command_config, check_answers, command_client
from sparklog.node.printable import printable
from sparklog.protocol.errors import KafkaError
from sparklog.user.client.cluster_client import ClusterClient
from sparklog.user.client.transactions import TransactionDescription
from sparklog.user.sink.client import SinkClient
from sparklog.user.sink.machine.errors import SinkError
from sparklog.user.sink.machine.names import SinkId, sink_of
from sparklog.user.sink.machine.protocols import Settle
from sparklog.user.sink.machine.steps import carry_out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparklog-sinks", description=__doc__)
    parser.add_argument("bootstrap", metavar="BOOTSTRAP", help="host:port, several with commas")
    parser.add_argument(
        "--end",
        metavar="SINK",
        help="commit the decided transactions of a sink and abort the rest; only if its query no longer runs",
    )
    add_command_config(parser)
    options = parser.parse_args(arguments)
    try:
        config = command_client(options.bootstrap, options.command_config)
        check_answers(config)
        with ClusterClient(config) as cluster:
            client = SinkClient(cluster)
            return _list(client) if options.end is None else _end(client, options.end)
    except (KafkaError, SinkError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1


def _list(client: SinkClient) -> int:
    by_sink: dict[str, list[TransactionDescription]] = {}
    for transaction in client.open_transactions():
        by_sink.setdefault(sink_of(transaction.transactional_id) or "", []).append(transaction)
    for sink, transactions in sorted(by_sink.items()):
        oldest_ms = min(each.started_ms for each in transactions if each.started_ms is not None)
        age_s = time.time() - oldest_ms / 1000
        print(f"{printable(sink)}: {len(transactions)} open transactions, the oldest for {age_s:.0f} s")
    if not by_sink:
        print("no open transactions of sinks")
    return 0


def _end(client: SinkClient, text: str) -> int:
    settled = carry_out(Settle(SinkId.parse(text)).steps(), client.perform)
    print(f"{text}: committed {len(settled.committed)} transactions, aborted {len(settled.aborted)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
