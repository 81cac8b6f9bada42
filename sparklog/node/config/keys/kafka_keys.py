"""The names of all public broker and topic configurations of Kafka 4.3.

They tell a key of Kafka's that is not honoured here from a misspelt one. The honoured keys are in
`BROKER_KEYS` and `TOPIC_KEYS`; `tests/compat/test_config_keys.py` compares with Kafka's own.
"""

from typing import Final

from sparklog.node.config.key_table import read_data

KAFKA_BROKER_KEYS: Final = frozenset(read_data("kafka_brokers.txt").split())
KAFKA_TOPIC_KEYS: Final = frozenset(read_data("kafka_topics.txt").split())
