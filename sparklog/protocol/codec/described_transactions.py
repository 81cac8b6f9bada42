"""The answer to DescribeTransactions as a client has to read it: a transaction need not have begun.

Kafka says so by a start of -1, which kio's entity has no value for.
"""

from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response
from kio.static.primitive import TZAware


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(response.TransactionState):  # type: ignore[misc]
    """One transactional id."""

    transaction_start_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(response.DescribeTransactionsResponse):  # type: ignore[misc]
    """All that were asked for."""

    transaction_states: tuple[TransactionState, ...]
