"""Send record batches at random to a cluster of ours and to Apache Kafka, and compare what they say.

python -m tests.compat.batches --cases 5000 [--seed 1]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from sparklog.node.clocks import wall_clock_ms
from tests.broker_process import prepare
from tests.cluster import LocalCluster
from tests.compat.batches.cases import cases
from tests.compat.batches.comparison import asked_of, comparison
from tests.compat.kafka_node import kafka_node


def main() -> int:
    """Compare as many cases as were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    prepare()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(brokers=1) as cluster,
        kafka_node(Path(directory), {}) as node,
        asked_of(node) as kafkas_answer,
        comparison(cluster, kafkas_answer) as compared,
    ):
        for case in cases(arguments.seed, arguments.cases, wall_clock_ms()):
            compared.compare(case)
        compared.consume_all(cluster.bootstrap_servers)
    for counted in (compared.answers, compared.known):
        print(*(f"{count:6} {what}" for what, count in counted.most_common()), sep="\n")
    print(*compared.disagreements, sep="\n")
    print(f"{len(compared.disagreements)} disagreements in {arguments.cases} cases (seed {arguments.seed})")
    return len(compared.disagreements) > 0


if __name__ == "__main__":
    sys.exit(main())
