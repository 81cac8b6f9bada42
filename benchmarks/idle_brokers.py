"""The driver's cost of brokers without load: `python -m benchmarks.idle_brokers --brokers 100`.

Three brokers are real, as processes of their own, and the driver is a thread of this process. The others are
simulated by another process: each registers, sends heartbeats and fetches of the metadata log as often as a
broker does, and pushes the metrics that a real one has pushed as often as the driver says. Each has three
connections. The CPU time of this process, which does nothing else meanwhile, is taken with the three brokers
and with all of them.
"""

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple
from uuid import UUID, uuid4

from kio.schema.broker_heartbeat.v2.request import BrokerHeartbeatRequest
from kio.schema.fetch.v18.request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kio.schema.get_telemetry_subscriptions.v0.request import GetTelemetrySubscriptionsRequest
from kio.schema.push_telemetry.v0.request import PushTelemetryRequest

from benchmarks.simulated_brokers import registration
from sparklog.node.calling.channel import Channel
from sparklog.node.calling.cluster_credentials import ClusterCredentials
from sparklog.node.clocks import wall_clock_ms
from sparklog.node.config import BrokerConfig
from sparklog.node.config.keys.controller_keys import MAX_BROKERS_KEY
from sparklog.node.loop.garbage import freezing_survivors
from sparklog.node.metadata.cluster_size import SizeChange
from sparklog.node.metrics.catalogue import metric_of
from sparklog.node.metrics.histogram import Summary
from sparklog.node.metrics.names import QUANTILES, Kind, MetricName
from sparklog.node.metrics.registry import Sample
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.telemetry.otlp import MetricsEncoder
from sparklog.protocol.errors import ErrorCode
from sparklog.protocol.records.batch import iterate_headers
from sparklog.protocol.records.codecs import Codec, compress
from sparklog.protocol.types import CLUSTER_METADATA_TOPIC_ID, BrokerId
from tests.cluster import LocalCluster, wait_for

REAL: Final = 3
FETCH_WAIT_MS: Final = 500
FETCH_BYTES: Final = 8 << 20
START_TIMEOUT_S: Final = 120.0
REGISTERED_AT_ONCE: Final = 10
BAR_PER_CENT: Final = 10.0


class Driver(NamedTuple):
    """A driver as its brokers know it."""

    host: str
    port: int
    secret: ApplicationSecret
    config: BrokerConfig
    cluster_id: str
    leader_epoch: int


class _Broker:
    """One simulated broker."""

    def __init__(self, broker_id: BrokerId, driver: Driver, metrics: bytes) -> None:
        self._id = broker_id
        self._driver = driver
        self._metrics = metrics
        self._directory = uuid4()
        self._epoch = -1
        self._fetch_offset = 0
        self._fetched_epoch = -1
        self._high_watermark = -1
        self._incarnation: UUID | None = None

    async def live(self, registered: asyncio.Semaphore) -> None:
        """Register, and go on until cancelled."""
        async with registered:
            heartbeats, fetches, pushes = [await self._connected() for _ in range(3)]
            request = registration(self._id, f"rack-{self._id % REAL}", self._directory)
            self._incarnation = request.incarnation_id
            answer = await heartbeats.request(replace(request, cluster_id=self._driver.cluster_id))
            if answer.error_code is not ErrorCode.none:
                raise RuntimeError(f"broker {self._id} is not registered: {answer.error_code.name}")
            self._epoch = answer.broker_epoch
        await asyncio.gather(self._beat(heartbeats), self._fetch(fetches), self._push(pushes))

    async def _connected(self) -> Channel:
        driver = self._driver
        credentials = ClusterCredentials.to(driver.config.controller_protocol, driver.secret)
        client_id = f"broker-{self._id}"
        channel = await Channel.connect(
            driver.host, driver.port, client_id, login=credentials.login, tls=credentials.tls
        )
        await channel.negotiate()
        return channel

    async def _beat(self, channel: Channel) -> None:
        while True:
            await channel.request(
                BrokerHeartbeatRequest(
                    broker_id=self._id,
                    broker_epoch=self._epoch,
                    current_metadata_offset=self._high_watermark - 1,
                    want_fence=False,
                    want_shut_down=False,
                )
            )
            await asyncio.sleep(self._driver.config.broker_heartbeat_interval_ms / 1_000)

    async def _fetch(self, channel: Channel) -> None:
        while True:
            partition = FetchPartition(
                partition=0,
                current_leader_epoch=self._driver.leader_epoch,
                fetch_offset=self._fetch_offset,
                last_fetched_epoch=self._fetched_epoch,
                log_start_offset=0,
                partition_max_bytes=FETCH_BYTES,
                replica_directory_id=self._directory,
                high_watermark=self._high_watermark,
            )
            answer = await channel.request(
                FetchRequest(
                    cluster_id=self._driver.cluster_id,
                    replica_state=ReplicaState(replica_id=self._id, replica_epoch=self._epoch),
                    max_wait=timedelta(milliseconds=FETCH_WAIT_MS),
                    min_bytes=1,
                    max_bytes=FETCH_BYTES,
                    topics=(FetchTopic(topic_id=CLUSTER_METADATA_TOPIC_ID, partitions=(partition,)),),
                    forgotten_topics_data=(),
                )
            )
            ((fetched,),) = (topic.partitions for topic in answer.responses)
            if fetched.error_code is not ErrorCode.none:
                raise RuntimeError(f"broker {self._id} cannot fetch: {fetched.error_code.name}")
            for _, header in iterate_headers(fetched.records or b""):
                self._fetch_offset, self._fetched_epoch = header.next_offset, header.partition_leader_epoch
            self._high_watermark = fetched.high_watermark

    async def _push(self, channel: Channel) -> None:
        while True:
            subscribed = await channel.request(
                GetTelemetrySubscriptionsRequest(client_instance_id=self._incarnation)
            )
            error_code = subscribed.error_code
            while error_code is ErrorCode.none and subscribed.requested_metrics:
                await asyncio.sleep(subscribed.push_interval.total_seconds())
                pushed: Any = await channel.request(
                    PushTelemetryRequest(
                        client_instance_id=self._incarnation,
                        subscription_id=subscribed.subscription_id,
                        terminating=False,
                        compression_type=int(Codec.LZ4),
                        metrics=self._metrics,
                    )
                )
                error_code = pushed.error_code
            await asyncio.sleep(1.0)


def _simulate(pipe: Connection, driver: Driver, brokers: range, metrics: bytes) -> None:
    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(_live(pipe, driver, brokers, metrics))


async def _live(pipe: Connection, driver: Driver, brokers: range, metrics: bytes) -> None:
    at_once = asyncio.Semaphore(REGISTERED_AT_ONCE)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), ended.set)
    lives = [asyncio.create_task(_Broker(each, driver, metrics).live(at_once)) for each in brokers]
    waits = asyncio.create_task(ended.wait())
    done, _ = await asyncio.wait([waits, *lives], return_when=asyncio.FIRST_COMPLETED)
    for each in done:
        each.result()


def _pushed(cluster: LocalCluster) -> bytes:
    """Return the newest metrics of a real broker, as it pushes them."""
    samples: dict[MetricName, Sample] = {}
    for name, value in wait_for(lambda: _values(cluster), "the metrics of a broker").items():
        known = metric_of(name)
        if known is None:
            continue
        whole = name._replace(attribute=known.of().attribute)
        of_histogram = Summary(1, value, (value,) * len(QUANTILES))
        samples[whole] = Sample(whole, known.kind, of_histogram if known.kind is Kind.HISTOGRAM else value)
    return compress(
        Codec.LZ4, MetricsEncoder(wall_clock_ms()).encode(list(samples.values()), wall_clock_ms())
    )


def _values(cluster: LocalCluster) -> dict[MetricName, float]:
    received = cluster.controller.broker_metrics.latest().get(0)
    return {} if received is None else dict(received.values)


def _spent_per_cent(seconds: float) -> float:
    began_s, before_s = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return 100 * (time.process_time() - before_s) / (time.monotonic() - began_s)


def _unfenced(cluster: LocalCluster) -> int:
    return sum(not broker.fenced for broker in cluster.image.brokers.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 above the bar."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idle_brokers",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args(arguments)
    with (
        freezing_survivors(),
        LocalCluster(
            brokers=REAL, config={MAX_BROKERS_KEY: str(options.brokers + REAL)}, freezes_survivors=True
        ) as cluster,
    ):
        metrics = _pushed(cluster)
        time.sleep(5)
        alone = _spent_per_cent(options.seconds)
        print(f"{REAL} brokers: {alone:.1f} % of a core of the driver", flush=True)
        size = SizeChange(brokers_per_rack=-(-options.brokers // REAL))
        if (refusal := cluster.controller.resize(size, START_TIMEOUT_S)) is not None:
            raise RuntimeError(refusal)
        host, _, port = cluster.controller.bootstrap_servers.rpartition(":")
        driver = Driver(
            *(host, int(port), cluster.controller.secret, cluster.broker_config),
            *(cluster.cluster_id, cluster.image.leader_epoch),
        )
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_simulate, args=(theirs, driver, range(REAL, options.brokers), metrics), daemon=True
        )
        process.start()
        try:
            wait_for(lambda: _unfenced(cluster) == options.brokers, "all are unfenced", START_TIMEOUT_S)
            time.sleep(15)
            spent = _spent_per_cent(options.seconds)
            assert _unfenced(cluster) == options.brokers, "one was fenced meanwhile"
        finally:
            ours.send(None)
            process.join(START_TIMEOUT_S)
            process.kill()
    print(
        f"{options.brokers} brokers: {spent:.1f} % of a core of the driver, bar {BAR_PER_CENT:.0f} %; "
        f"{len(metrics) / 1024:.1f} KiB of metrics a push"
    )
    return int(spent > BAR_PER_CENT)


if __name__ == "__main__":
    sys.exit(main())
