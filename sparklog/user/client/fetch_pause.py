"""Pause after an empty Fetch response that came before it was due: the next one would be as early.

Apache Kafka does not delay a fetch above the last stable offset (DelayedFetch takes the log for truncated),
and a reader there stays until an open transaction ends. With the pause no request takes longer than a delayed
one.
"""

from sparklog.node.exponential_backoff import ExponentialBackoff


def early_pause_s(
    backoff: ExponentialBackoff, answers_before: int, waited_s: float, max_wait_s: float
) -> float:
    """Return the pause after a response that took `waited_s`; 0 if that was half the wait or more.

    `answers_before` is the number of consecutive early responses before it.

    >>> backoff = ExponentialBackoff(first_ms=100, max_ms=1_000)
    >>> [early_pause_s(backoff, 3, waited_s, max_wait_s=0.5) for waited_s in (0.0, 0.125, 0.25)]
    [0.5, 0.375, 0.0]
    """
    left_s = max_wait_s - waited_s
    return min(backoff.pause_ms(answers_before) / 1000, left_s) if left_s > max_wait_s / 2 else 0.0
