"""The tier's part of the overview, from what brokers report."""

from sparklog.driver.monitoring.received_metrics import ReceivedMetrics
from sparklog.driver.ui.machine.broker_status_metrics import MAX_AGE_MS
from sparklog.driver.ui.machine.status import TieredTopic, TierErrorStatus, TierStatus
from sparklog.driver.ui.machine.tier_figures import TierReader
from sparklog.node.metrics import remote_log
from sparklog.node.metrics.names import COUNT, MetricName


def reported(lag_ms: float, reads: float) -> dict[MetricName, float]:
    return {
        remote_log.AWAITING_MANIFEST.of(): 1.0,
        remote_log.LOG_SIZE_BYTES.of(): 700.0,
        remote_log.LOG_SIZE_BYTES.of(topic="t"): 700.0,
        remote_log.LOCAL_LOG_BYTES.of(topic="t"): 100.0,
        remote_log.COPY_LAG_BYTES.of(topic="t"): 30.0,
        remote_log.COPY_LAG_RECORDS.of(topic="t"): 3.0,
        remote_log.COPY_LAG_TIME.of(topic="t"): lag_ms,
        remote_log.FETCH_REQUESTS.of(topic="t")._replace(attribute=COUNT): reads,
        remote_log.TIER_ERROR.of(topic="t", partition="4", error="no bucket", kind="refused"): 1_500.0,
    }


def test_tier_is_what_the_leaders_on_all_brokers_report() -> None:
    """Each partition counts once, at its leader; the oldest uncopied record of all is that of the topic."""
    reader = TierReader()
    reader.read({0: ReceivedMetrics(0, reported(10, 5)), 1: ReceivedMetrics(0, reported(10, 5))}, 0)
    latest = {0: ReceivedMetrics(2_000, reported(40, 15)), 1: ReceivedMetrics(2_000, reported(20, 5))}
    error = TierErrorStatus(topic="t", partition=4, error="no bucket", kind="refused", for_ms=1_500)
    assert reader.read(latest, 2_000) == TierStatus(
        tiered_bytes=1_400,
        partitions_awaiting_manifest=2,
        topic_count=1,
        topics=(
            TieredTopic(
                name="t",
                local_bytes=200,
                tiered_bytes=1_400,
                copy_lag_bytes=60,
                copy_lag_records=6,
                copy_lag_ms=40,
                reads_per_s=5.0,
            ),
        ),
        errors=(error, error),
    )


def test_cluster_without_tier_shows_none() -> None:
    """Most clusters have no object store, and no use for an empty table."""
    reader = TierReader()
    assert reader.read({0: ReceivedMetrics(0, {})}, 0) is None
    assert reader.read({0: ReceivedMetrics(0, reported(1, 1))}, MAX_AGE_MS + 1) is None
