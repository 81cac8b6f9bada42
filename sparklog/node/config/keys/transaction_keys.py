"""The keys of transactions: Kafka's names, types, limits and defaults; and one key of sparklog's."""

from dataclasses import dataclass

from sparklog.node.config.definition import BOOLEAN, INT, LIST, at_least, config_key


@dataclass(frozen=True, kw_only=True)
class TransactionKeys:
    transactional_id_expiration_ms: int = config_key(
        INT,
        604800000,
        "How long an unused transactional id is remembered; never expires while its transaction is open.",
        at_least(1),
    )
    transaction_max_timeout_ms: int = config_key(
        INT, 900000, "The longest transaction.timeout.ms that a producer may ask for.", at_least(1)
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = config_key(
        INT,
        10000,
        "How often a coordinator looks for transactions that have been open for too long, and aborts them.",
        at_least(1),
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = config_key(
        INT, 3600000, "How often a coordinator looks for transactional ids that have expired.", at_least(1)
    )
    transaction_two_phase_commit_enable: bool = config_key(
        BOOLEAN,
        False,
        "Whether producers may have transactions without a time-out, whose outcome an external system"
        " decides.",
    )
    sparklog_two_phase_commit_transactional_id_prefixes: tuple[str, ...] = config_key(
        LIST,
        ("sparklog-sink.",),
        "Transactional ids that begin with one of these may have transactions without a time-out in any case:"
        " those in which DataFrames are written exactly once. Not a key of Kafka's.",
    )
