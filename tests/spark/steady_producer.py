"""Produces to every partition of a topic until its standard input ends, and prints the longest pause.

    python -m tests.spark.steady_producer BOOTSTRAP_SERVERS TOPIC PARTITIONS

A pause is the time in seconds from one acknowledgement of a partition to the next. A process of its own: what
else a test's Python does would count as well.
"""

import sys
import threading
import time
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

SEND_EVERY_S: Final = 0.005


def longest_pause_s(bootstrap_servers: str, topic: str, partitions: int) -> float:
    """Produce until the standard input ends.

    Raises:
        RuntimeError: A record was not acknowledged.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all"})
    ending = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
    last_s: dict[int, float] = {}
    longest_s: float | None = None
    errors: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        nonlocal longest_s
        now_s, partition = time.monotonic(), message.partition()
        if error is not None:
            errors.append(error)
        if longest_s is not None:
            longest_s = max(longest_s, now_s - last_s[partition])
        last_s[partition] = now_s

    while not ending.wait(SEND_EVERY_S):
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition, on_delivery=acknowledged)
        producer.poll(0)
        if longest_s is None and len(last_s) == partitions:  # it has connected to all leaders
            longest_s = 0.0
            print("producing", flush=True)
    if producer.flush(30) or errors:
        raise RuntimeError(f"records were not acknowledged: {errors or 'no answer'}")
    return longest_s or 0.0


if __name__ == "__main__":
    print(longest_pause_s(sys.argv[1], sys.argv[2], int(sys.argv[3])))
