"""The hour of `make bench`, case by case.

A bound is of a whole case: its preparation and its rounds on both sides. Clusters start, and topics and
sessions end, beside the bounds, in what these leave of the hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

HOUR_S: Final = 3_600
BESIDE_CASES_S: Final = 150
"""For what is beside the cases: Maven, two clusters, the ends of topics and sessions."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The rounds of a case, and its time."""

    bound_s: float
    counted: int = 5
    """The rounds that are counted, if the bound leaves time for them."""
    warms: bool = True
    """Whether counting begins only when both sides stand still (`benchmarks.rounds`)."""


IN_THE_HOUR: Final[Mapping[str, Budget]] = {
    # Without clusters.
    "cleaning-100": Budget(85, counted=3),
    "cleaning-100-zstd": Budget(85, counted=3),
    "cleaning-1000": Budget(60, counted=3),
    "cleaning-1000-zstd": Budget(60, counted=3),
    # Rounds of a gigabyte; the first case warms the JVMs for the others.
    "produce-1000": Budget(425),
    "produce-100": Budget(320),
    "produce-1000-zstd": Budget(190),
    "produce-100-zstd": Budget(250),
    "consume-1000": Budget(60),
    "consume-100": Budget(120),
    "latency": Budget(165),
    "idempotent": Budget(140),
    "transactions-copy": Budget(35),
    "transactions-single": Budget(40),
    "groups-commit": Budget(40),
    # The first of them starts the sessions of all.
    "dataframe-read-100": Budget(105),
    "dataframe-read-1000": Budget(60),
    "dataframe-write-100": Budget(85),
    "dataframe-write-1000": Budget(75),
    "dataframe-stream-100": Budget(90),
    "dataframe-stream-1000": Budget(70),
    "sink-stream-100": Budget(100),
    "sink-stream-1000": Budget(105),
    "sink-small-batch": Budget(100),
    "sink-batch-atomic": Budget(60),
    "query-small-batch": Budget(70),
    "query-noticed": Budget(60),
    "query-idle": Budget(60, counted=2, warms=False),
    # After all that, since memory grows; before brokers are killed.
    "idle": Budget(65, counted=3, warms=False),
    "failover": Budget(270, counted=7, warms=False),
}
"""By name, in the order in which they run."""

BY_NAME_ONLY: Final[Mapping[str, Budget]] = {
    "read-isolation": Budget(120),
    "groups-join-classic": Budget(120),
    "groups-join-consumer": Budget(120),
    "groups-heartbeats-classic": Budget(600, counted=3),
    "groups-heartbeats-consumer": Budget(600, counted=3),
    "groups-failover": Budget(600, warms=False),
    "groups-load": Budget(900, counted=3, warms=False),
    # On clusters of their own, with TLS and a thousand ACLs.
    "tls-produce": Budget(400),
    "tls-consume": Budget(300),
    "sasl-ssl-connect": Budget(180),
    "authorization": Budget(900),
}
"""Those for which the hour has no time."""

BUDGETS: Final[Mapping[str, Budget]] = {**IN_THE_HOUR, **BY_NAME_ONLY}


def within_the_hour(budget: Budget, spent_s: float) -> Budget:
    """Return the budget of a case that begins after `spent_s`, cut to what is left of the hour.

    A cluster that does not answer takes time beside the bounds, when its cases end. The last cases pay for
    that, and have a second each at least, so that their rows say so.
    """
    return replace(budget, bound_s=min(budget.bound_s, max(1, round(HOUR_S - spent_s))))
