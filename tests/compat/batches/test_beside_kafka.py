"""Some of the batches that `python -m tests.compat.batches` sends to both by the thousand."""

from pathlib import Path

from sparklog.node.clocks import wall_clock_ms
from tests.cluster import LocalCluster
from tests.compat.batches.cases import cases
from tests.compat.batches.comparison import comparison
from tests.compat.kafka_node import kafka_node
from tests.compat.kafka_programs import KafkaProgram

CASES = 400
SEED = 31


def test_batches_at_random_are_taken_and_refused_as_kafka_does_and_what_is_taken_can_be_read(
    kafka_program: KafkaProgram, tmp_path: Path
) -> None:
    """A batch that is acknowledged, and that some reader cannot read, ends all consumers of its partition."""
    with (
        LocalCluster(brokers=1) as cluster,
        kafka_node(tmp_path, {}) as node,
        comparison(cluster, node) as compared,
    ):
        for case in cases(SEED, CASES, wall_clock_ms()):
            compared.compare(case)
        compared.consume_all(cluster.bootstrap_servers)
    assert compared.disagreements == []
