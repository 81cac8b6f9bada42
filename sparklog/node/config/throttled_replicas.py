"""leader.replication.throttled.replicas and the follower's: the replicas that a quota throttles.

Written as `*` for all of them, or as `partition:broker,partition:broker`.

Source: Kafka's ThrottledReplicaListValidator and TopicConfigHandler.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from sparklog.node.config.definition import Rule
from sparklog.protocol.types import BrokerId

_ALL: Final = "*"
_REPLICA: Final = re.compile(r"(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9})")


class ThrottledReplicas(NamedTuple):
    all_of_them: bool
    replicas: frozenset[tuple[int, BrokerId]]

    @classmethod
    def of(cls, listed: Iterable[str]) -> "ThrottledReplicas":
        """Return the replicas of a list that `THROTTLED_REPLICAS_RULE` accepts."""
        if tuple(listed) == (_ALL,):
            return cls(True, frozenset())
        matches = (_REPLICA.fullmatch(item) for item in listed)
        return cls(False, frozenset((int(match[1]), int(match[2])) for match in matches if match))

    def include(self, partition: int, broker_id: BrokerId) -> bool:
        return self.all_of_them or (partition, broker_id) in self.replicas


THROTTLED_REPLICAS_RULE: Final = Rule(
    "*, or a list of partition:broker",
    lambda listed: listed == (_ALL,) or all(_REPLICA.fullmatch(item) for item in listed),
)
