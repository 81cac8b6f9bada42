"""Warnings of what stays as it is for as long as a query runs, such as an option that has no effect.

Spark makes readers and writers anew for each task and each batch, in processes that it uses again.
"""

import logging
from functools import lru_cache

logger = logging.getLogger(__name__)


@lru_cache(maxsize=1_000)
def warn_once(message: str) -> None:
    """Warn, if this process has not said the same already, as far back as it remembers."""
    logger.warning("%s", message)
