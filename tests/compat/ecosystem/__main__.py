"""Run programs of Kafka's ecosystem with a cluster of ours, under kills, and say how long each took.

python -m tests.compat.ecosystem mirror-maker connect streams [--records 7000]
"""

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.chaos.counting import COUNTERS, count_words
from tests.cluster import LocalCluster
from tests.compat.ecosystem.beside import kafka_beside, our_cluster
from tests.compat.ecosystem.copied_lines import copy_lines
from tests.compat.ecosystem.mirrored_topics import MirroredCluster, mirror_both_ways

RECORDS: Final = 7_000


def mirror_maker(cluster: LocalCluster, directory: Path, records: int) -> object:
    """Copy topics both ways."""
    with kafka_beside(directory) as kafka:
        return mirror_both_ways(
            MirroredCluster("ours", cluster.bootstrap_servers, replicas=3),
            MirroredCluster("apache", kafka.bootstrap_servers, replicas=1),
            directory,
            records=records,
        )


def connect(cluster: LocalCluster, directory: Path, records: int) -> object:
    """Copy the lines of a file."""
    copy_lines(cluster, directory, lines=records // 3)
    return f"{records // 3 * 3} lines, once and then again by offsets"


def streams(cluster: LocalCluster, directory: Path, records: int) -> object:
    """Count words."""
    chance = random.Random()

    def kill_broker(_: object) -> None:
        broker_id = chance.choice(cluster.broker_ids)
        cluster.kill(broker_id)
        cluster.restart(broker_id)

    kills = [kill_broker, lambda instances: instances.kill(chance.randrange(COUNTERS))] * 2
    count_words(cluster.bootstrap_servers, chance, kills, lines=records // len(kills))
    return f"{len(kills)} kills"


PROGRAMS: Final = {"mirror-maker": mirror_maker, "connect": connect, "streams": streams}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.ecosystem", description=__doc__)
    parser.add_argument("programs", nargs="*", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--records", type=int, default=RECORDS)
    arguments = parser.parse_args()
    with our_cluster() as cluster:
        for name in arguments.programs:
            with tempfile.TemporaryDirectory() as directory:
                began_s = time.monotonic()
                found = PROGRAMS[name](cluster, Path(directory), arguments.records)
                print(f"{name}: {time.monotonic() - began_s:.1f} s, {found}", flush=True)


if __name__ == "__main__":
    main()
