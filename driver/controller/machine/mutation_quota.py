"""The partitions that one request may create or delete, topic by topic.

A strict quota refuses topics once its tokens are spent; a permissive one, for clients that do not know the
error, does all and throttles its client. In both, the first topic that finds the quota not overdrawn is done
as a whole, even if it is larger than the rest: each waiting client gets its turn, however small its quota.

Source: KIP-599; Kafka's StrictControllerMutationQuota and PermissiveControllerMutationQuota.
"""

from typing import Final

from sparklog.node.quotas.machine.client_rates import TokenQuota
from sparklog.protocol.errors import ErrorCode, KafkaError


class MutationQuota:
    def __init__(self, quota: TokenQuota | None, *, strict: bool, now_ms: int) -> None:
        """Take from `quota`, which all requests of a client share; `None` is unlimited."""
        self._quota = quota
        self._strict = strict
        self._now_ms = now_ms
        self._throttle_ms = 0

    def spend(self, partitions: int) -> None:
        """Take a token for each of the partitions of a topic, before they are created or deleted.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED: none are left, and the client knows that error.
        """
        if self._quota is None:
            return
        if self._strict:
            self._throttle_ms = self._quota.throttle_ms(self._now_ms)
            if self._throttle_ms:
                raise KafkaError(
                    ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded."
                )
            self._quota.record(partitions, self._now_ms)
        else:
            self._throttle_ms = self._quota.record(partitions, self._now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        return max(0, self._throttle_ms - (now_ms - self._now_ms))


UNLIMITED: Final = MutationQuota(None, strict=False, now_ms=0)
