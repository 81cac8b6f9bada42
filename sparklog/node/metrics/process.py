"""Metrics that Kafka does not have: of a node's process, its event loop, and its telemetry."""

from typing import Final

from sparklog.node.metrics.names import Kind, metric

CPU_TIME: Final = metric(
    "sparklog:type=Process,name=CpuTimeMs", Kind.METER, "Processor time of the process, of all its threads."
)
RESIDENT_MEMORY: Final = metric(
    "sparklog:type=Process,name=ResidentMemoryBytes", Kind.GAUGE, "Memory that the process holds."
)
OPEN_FILES: Final = metric(
    "sparklog:type=Process,name=OpenFileDescriptors", Kind.GAUGE, "Open files and connections of the process."
)
MAX_FILES: Final = metric(
    "sparklog:type=Process,name=MaxFileDescriptors",
    Kind.GAUGE,
    "How many the process may have (RLIMIT_NOFILE).",
)
LOOP_LAG: Final = metric(
    "sparklog:type=EventLoop,name=MaxLagMs",
    Kind.GAUGE,
    "The longest stall of the event loop in the last ten seconds.",
)
LOOP_IDLE: Final = metric(
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    Kind.GAUGE,
    "The share of the last second in which the event loop had nothing to do, from 0 to 1.",
)
RESTARTS: Final = metric(
    "sparklog:type=Broker,name=RestartCount",
    Kind.GAUGE,
    "How often the broker's task was started again since the application began.",
)
SAMPLE_AGE: Final = metric(
    "sparklog:type=Telemetry,name=AgeMs",
    Kind.GAUGE,
    "The age of a node's latest samples; a node that is down sends none.",
)
