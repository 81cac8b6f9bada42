"""Id and epoch of a fetch session (KIP-227; Kafka's FetchMetadata).

The epoch counts the requests of a session. Epoch 0 asks for a new session, epoch -1 for none
(and closes the one named); any other must be the next in line.
"""

from typing import Final

NO_SESSION_ID: Final = 0
FULL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LARGEST: Final = 2**31 - 1
"""Largest session id, and largest epoch of a session."""


def epoch_after(epoch: int) -> int:
    """Return the epoch of the next request in a session; it wraps to 1, since 0 begins another session."""
    return 1 if epoch == LARGEST else epoch + 1
