"""A status in which everything that can be shown is there, with markup where somebody may put some."""

from dataclasses import replace

from sparklog.driver.ui.machine.status import (
    ApiStatusMetrics,
    BrokerAvailability,
    BrokerStatus,
    BrokerStatusMetrics,
    BrokerTask,
    ControllerStatus,
    Event,
    PartitionsStatus,
    PartitionTrouble,
    QueryStatus,
    SourceStatus,
    Status,
    TopicSummary,
    Trouble,
    VoterStatus,
)

EVIL = "<img src=x onerror=alert(1)>&\"'"

FIGURES = BrokerStatusMetrics(
    bytes_in_per_s=1_500_000.0,
    bytes_out_per_s=3_000_000.0,
    records_in_per_s=12_345.6,
    requests=(
        ApiStatusMetrics(api="Produce", requests_per_s=250.0, p99_ms=12.5),
        ApiStatusMetrics(api="FetchConsumer", requests_per_s=40.0, p99_ms=501.0),
    ),
    log_size_bytes=3 * 2**30,
    free_bytes=90 * 2**30,
    loop_lag_ms=0.4,
)


def broker(node_id: int) -> BrokerStatus:
    """Return a broker that serves."""
    return BrokerStatus(
        node_id=node_id,
        state=BrokerAvailability.SERVING,
        rack=f"rack-{node_id}",
        listener=f"127.0.0.1:{9092 + node_id}",
        broker_epoch=5,
        restarts=node_id,
        task=BrokerTask(
            executor_id=str(node_id),
            host="worker",
            stage_id=node_id,
            logs=(("stderr", "http://worker:8081/log"),),
        ),
        partitions_led=4,
        partitions_held=12,
        partitions_in_sync=12,
        figures=FIGURES,
    )


STATUS = Status(
    taken_ms=1_700_000_000_000,
    cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
    bootstrap_servers="127.0.0.1:9092",
    missing=None,
    controller=ControllerStatus(
        node_id=1_000_000,
        leader_epoch=3,
        high_watermark=120,
        log_end_offset=121,
        has_majority=True,
        voters=(
            VoterStatus(node_id=0, is_voter=True, log_end_offset=121, lag=0, last_fetch_age_ms=12),
            VoterStatus(node_id=1, is_voter=True, log_end_offset=None, lag=None, last_fetch_age_ms=None),
        ),
    ),
    brokers=(
        broker(0),
        replace(broker(1), state=BrokerAvailability.FENCED, figures=None, task=None),
        broker(2),
    ),
    partitions=PartitionsStatus(
        count=12,
        offline=1,
        under_min_isr=0,
        under_replicated=1,
        troubled=(
            PartitionTrouble(
                topic="flights",
                partition=0,
                trouble=Trouble.OFFLINE,
                leader=None,
                replicas=(1, 0, 2),
                isr=(1,),
                eligible=(2,),
            ),
        ),
    ),
    topic_count=1,
    topics=(
        TopicSummary(
            name="flights", partitions=12, replicas=3, offline=1, under_min_isr=0, under_replicated=1
        ),
    ),
    queries=(
        QueryStatus(
            name=EVIL,
            run_id="run",
            batch_id=7,
            timestamp="2026-01-01",
            batch_duration_ms=164,
            sources=(
                SourceStatus(description=EVIL, lag=5, input_rows_per_s=1.0, processed_rows_per_s=2.0),
                SourceStatus(description="rate", lag=None, input_rows_per_s=1.0, processed_rows_per_s=2.0),
            ),
            sink=EVIL,
        ),
    ),
    events=(Event(at_ms=1_700_000_000_000, kind="fenced", subject="broker 1", reason=EVIL),),
)
