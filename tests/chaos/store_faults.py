"""A tier whose object store fails, in four ways one after the other, each beside the SIGKILL of a broker.

503 storms, answers that take 5 s, connections that end after the request was served, and a bucket that is
away for a minute. Old records are on no broker's disk, and a reader begins again and again at the first
offset. When a phase has ended, the copies must catch up with what there was then within `CAUGHT_UP_S`, and
the reader must come through once more.
"""

import statistics
import threading
import time
from datetime import timedelta
from typing import Final, Self

from confluent_kafka import Consumer, TopicPartition
from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from benchmarks.faults import FAULTS as SIGNALS
from sparklog.node.calling.blocking import BlockingChannel
from sparklog.protocol.errors import KafkaError
from tests.chaos.ledger import Ledger
from tests.chaos.reading import BATCH, GONE, enter, new_consumer
from tests.chaos.scene import POLL_S, Scene, Struck, TierError
from tests.chaos.store_proxy import StoreFaults

MAX_LAG_MS: Final = 5_000
CONFIG: Final = {
    "sparklog.remote.max.lag.ms": str(MAX_LAG_MS),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
TOPIC_CONFIG: Final = {"segment.ms": "5000", "local.retention.ms": "10000"}
"""Records older than a quarter of a minute are in the object store alone."""
PHASES: Final = {
    "503 storms": (StoreFaults(storm=0.8), 20.0),
    "answers after 5 s": (StoreFaults(hold_s=5.0), 20.0),
    "cut after success": (StoreFaults(cut=0.5), 20.0),
    "away": (StoreFaults(is_away=True), 60.0),
}
BEFORE_S: Final = 20.0
"""How long the store is whole before, so that there are records that it alone has."""
LONGEST_PAUSE_S: Final = 30.0
"""Of those that a leader makes before it tries a store that has failed again and again."""
CAUGHT_UP_S: Final = LONGEST_PAUSE_S + 3 * MAX_LAG_MS / 1_000
TIMEOUT_S: Final = 90.0
LATEST: Final = -1
LATEST_TIERED: Final = -5


class Rereader:
    """Reads a topic from its first offset to its end, again and again, in a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, ledger: Ledger) -> None:
        self.passes = 0
        self.complaints: list[str] = []
        self._ledger = ledger
        self._topic = topic
        self._partitions = range(partitions)
        self._consumer: Consumer = new_consumer(bootstrap_servers)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rereader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            ends = {partition: self._ledger.next_offset(partition) for partition in self._partitions}
            reached = dict.fromkeys(ends, 0)
            self._consumer.assign([TopicPartition(self._topic, partition, 0) for partition in ends])
            while any(reached[each] < end for each, end in ends.items()) and not self._stopping.is_set():
                for message in self._consumer.consume(BATCH, POLL_S):
                    error = message.error()
                    if error is None:
                        partition, reached[partition] = enter(self._ledger, message)
                    elif error.code() in GONE:
                        self.complaints.append(f"partition {message.partition()}, read again: {error}")
            self.passes += 1


def fail_store(scene: Scene) -> Struck:
    """Go through all phases.

    Raises:
        TierError: copies or readers do not come through when the store is whole again.
    """
    assert scene.store is not None
    store, told, hit = scene.store, [], set()
    partitions = len(scene.brokers()[1])
    servers = scene.application.bootstrap_servers
    with Rereader(servers, scene.view.topic, partitions, scene.ledger) as rereader:
        time.sleep(BEFORE_S)
        for name, (faults, seconds) in PHASES.items():
            began_s = time.monotonic()
            store.seen.clear()
            store.faults = faults
            try:
                kill_after_s = scene.chance.uniform(0, seconds / 2)
                time.sleep(kill_after_s)
                hit.add(_kill_a_leader(scene))
                time.sleep(seconds - kill_after_s)
            finally:
                store.faults = StoreFaults()
            requests = ", ".join(f"{count} {what}" for what, count in sorted(store.seen.items()))
            try:
                caught_up_s = _wait_until_caught_up(scene, partitions)
                _wait_until_read_again(rereader)
            except TierError as error:
                raise TierError(f"{name} ({requests}): {error}; before: {told or 'nothing'}") from error
            gap_s = max(scene.probe.longest_gaps_s(began_s))
            told.append(f"{name} ({requests}): caught up in {caught_up_s:.1f} s, silence {gap_s:.2f} s")
        if rereader.complaints:
            raise TierError("; ".join(rereader.complaints[:3]))
        description = f"{'; '.join(told)}; read from the beginning {rereader.passes} times"
    return Struck(description, frozenset(hit), False, time.monotonic())


def _kill_a_leader(scene: Scene) -> int:
    processes, leaders = scene.brokers()
    victim = statistics.mode(leaders)
    SIGNALS["kill"].strike(processes[victim])
    return victim


def _wait_until_caught_up(scene: Scene, partitions: int) -> float:
    """Return after how many seconds the store has all that was written when this was called.

    Raises:
        TierError: it did not get it in time.
    """
    began_s = time.monotonic()
    ends: dict[int, int] = {}
    while True:
        for partition in range(partitions):
            if partition not in ends and (end := end_offset(scene, partition, LATEST)) is not None:
                ends[partition] = end
        tiered = {partition: end_offset(scene, partition, LATEST_TIERED) for partition in ends}
        behind = {
            partition: (found, ends[partition])
            for partition, found in tiered.items()
            if found is None or found + 1 < ends[partition]
        }
        took_s = time.monotonic() - began_s
        if len(ends) == partitions and not behind:
            if took_s > CAUGHT_UP_S:
                raise TierError(f"copies took {took_s:.1f} s to catch up, not {CAUGHT_UP_S} s")
            return took_s
        if took_s > TIMEOUT_S:
            raise TierError(f"copies did not catch up in {TIMEOUT_S} s: {behind} of {ends}")
        time.sleep(POLL_S)


def _wait_until_read_again(rereader: Rereader) -> None:
    """Return after a whole pass that has begun since.

    Raises:
        TierError: none came through in time.
    """
    wanted, deadline_s = rereader.passes + 2, time.monotonic() + TIMEOUT_S
    while rereader.passes < wanted:
        if time.monotonic() > deadline_s:
            raise TierError(f"the topic could not be read from its beginning in {TIMEOUT_S} s")
        time.sleep(POLL_S)


def end_offset(scene: Scene, partition: int, timestamp: int) -> int | None:
    """Return what the leader answers to ListOffsets; None while none answers."""
    sight = scene.view.look()
    port = sight.ports.get(sight.leaders[partition]) if sight.leaders else None
    if port is None:
        return None
    asked = ListOffsetsTopic(
        name=scene.view.topic,
        partitions=(ListOffsetsPartition(partition_index=partition, timestamp=timestamp),),
    )
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(asked,), timeout=timedelta(seconds=5)
    )
    try:
        with BlockingChannel("127.0.0.1", port, "chaos", timeout_s=5.0) as channel:
            (topic,) = channel.request(request).topics
    except KafkaError:
        return None
    (answer,) = topic.partitions
    return int(answer.offset) if answer.error_code == 0 else None
