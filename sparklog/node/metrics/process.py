"""Metrics that Kafka does not have: of a node's process, its event loop, and its telemetry."""

from typing import Final

from sparklog.node.metrics.names import gauge, meter

CPU_TIME: Final = meter(
    "sparklog:type=Process,name=CpuTimeMs", "Processor time of the process, of all its threads."
)
RESIDENT_MEMORY: Final = gauge(
    "sparklog:type=Process,name=ResidentMemoryBytes", "Memory that the process holds."
)
OPEN_FILES: Final = gauge(
    "sparklog:type=Process,name=OpenFileDescriptors", "Open files and connections of the process."
)
MAX_FILES: Final = gauge(
    "sparklog:type=Process,name=MaxFileDescriptors", "How many the process may have (RLIMIT_NOFILE)."
)
LOOP_LAG: Final = gauge(
    "sparklog:type=EventLoop,name=MaxLagMs", "The longest stall of the event loop in the last ten seconds."
)
LOOP_IDLE: Final = gauge(
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
    "The share of the last second in which the event loop had nothing to do, from 0 to 1.",
)
RESTARTS: Final = gauge(
    "sparklog:type=Broker,name=RestartCount",
    "How often the broker's task was started again since the application began.",
)
SAMPLE_AGE: Final = gauge(
    "sparklog:type=Telemetry,name=AgeMs",
    "The age of a node's latest samples; a node that is down sends none.",
)
