"""The response to DescribeTransactions as a client reads it, with a start of -1 for no transaction.

kio's entity has no value for that start.
"""

from dataclasses import dataclass, field

from kio.schema.describe_transactions.v0 import response
from kio.static.primitive import TZAware


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState(response.TransactionState):  # type: ignore[misc]
    transaction_start_time: TZAware | None = field(metadata={"kafka_type": "datetime_i64"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsResponse(response.DescribeTransactionsResponse):  # type: ignore[misc]
    transaction_states: tuple[TransactionState, ...]
