"""Produces to every partition of a topic until its standard input ends; prints its longest pause, and delay.

    python -m tests.spark.steady_producer BOOTSTRAP_SERVERS TOPIC PARTITIONS

A pause is the time in seconds from one acknowledgement of a partition to the next. A delay is the time in
seconds by which the process itself ran later than it had asked for: on a machine without a free processor a
pause consists of such delays, of the producer, the leader and its followers. A process of its own: what else
a test does in Python would count as well.
"""

import sys
import threading
import time
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

SEND_EVERY_S: Final = 0.005


def longest_pause(bootstrap_servers: str, topic: str, partitions: int) -> tuple[float, float, float]:
    """Produce until the standard input ends; return the pause, its end since the epoch, and the delay, in s.

    Raises:
        RuntimeError: A record was not acknowledged.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0, "acks": "all"})
    ending = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
    last_s: dict[int, float] = {}
    longest_s: float | None = None
    ended_s = 0.0
    errors: list[KafkaError] = []

    def acknowledged(error: KafkaError | None, message: Message) -> None:
        nonlocal longest_s, ended_s
        now_s, partition = time.monotonic(), message.partition()
        if error is not None:
            errors.append(error)
        if longest_s is not None and now_s - last_s[partition] > longest_s:
            longest_s, ended_s = now_s - last_s[partition], time.time()
        last_s[partition] = now_s

    delay_s, due_s = 0.0, time.monotonic() + SEND_EVERY_S
    while not ending.wait(SEND_EVERY_S):
        if longest_s is not None:
            delay_s = max(delay_s, time.monotonic() - due_s)
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition, on_delivery=acknowledged)
        producer.poll(0)
        if longest_s is None and len(last_s) == partitions:  # it has connected to all leaders
            longest_s = 0.0
            print("producing", flush=True)
        due_s = time.monotonic() + SEND_EVERY_S
    if producer.flush(30) or errors:
        raise RuntimeError(f"records were not acknowledged: {errors or 'no answer'}")
    return longest_s or 0.0, ended_s, delay_s


if __name__ == "__main__":
    print(*longest_pause(sys.argv[1], sys.argv[2], int(sys.argv[3])))
