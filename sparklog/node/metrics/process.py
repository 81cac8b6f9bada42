"""Metrics that Kafka does not have: of a node's process, its event loop, and its telemetry."""

from typing import Final

from sparklog.node.metrics.names import Kind, Metric

CPU_TIME: Final = Metric(
    "sparklog", "Process", "CpuTimeMs", Kind.METER, "Processor time of the process, of all its threads."
)
RESIDENT_MEMORY: Final = Metric(
    "sparklog", "Process", "ResidentMemoryBytes", Kind.GAUGE, "Memory that the process holds."
)
OPEN_FILES: Final = Metric(
    "sparklog", "Process", "OpenFileDescriptors", Kind.GAUGE, "Open files and connections of the process."
)
MAX_FILES: Final = Metric(
    "sparklog", "Process", "MaxFileDescriptors", Kind.GAUGE, "How many the process may have (RLIMIT_NOFILE)."
)
LOOP_LAG: Final = Metric(
    "sparklog",
    "EventLoop",
    "MaxLagMs",
    Kind.GAUGE,
    "The longest stall of the event loop in the last ten seconds.",
)
LOOP_IDLE: Final = Metric(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    Kind.GAUGE,
    "The share of the last second in which the event loop had nothing to do, from 0 to 1.",
)
RESTARTS: Final = Metric(
    "sparklog",
    "Broker",
    "RestartCount",
    Kind.GAUGE,
    "How often the broker's task was started again since the application began.",
)
SAMPLE_AGE: Final = Metric(
    "sparklog",
    "Telemetry",
    "AgeMs",
    Kind.GAUGE,
    "The age of a node's latest samples; a node that is down sends none.",
)

METRICS: Final = (
    CPU_TIME,
    RESIDENT_MEMORY,
    OPEN_FILES,
    MAX_FILES,
    LOOP_LAG,
    LOOP_IDLE,
    RESTARTS,
    SAMPLE_AGE,
)
