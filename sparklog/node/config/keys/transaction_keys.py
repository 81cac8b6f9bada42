"""The keys of transactions: Kafka's names, types, limits and defaults; and one key of sparklog's."""

from dataclasses import dataclass

from sparklog.node.config.key_table import broker_key


@dataclass(frozen=True, kw_only=True)
class TransactionKeys:
    transactional_id_expiration_ms: int = broker_key("transactional.id.expiration.ms")
    transaction_max_timeout_ms: int = broker_key("transaction.max.timeout.ms")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = broker_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = broker_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    transaction_two_phase_commit_enable: bool = broker_key("transaction.two.phase.commit.enable")
    sparklog_two_phase_commit_transactional_id_prefixes: tuple[str, ...] = broker_key(
        "sparklog.two.phase.commit.transactional.id.prefixes"
    )
