"""Warnings about conditions that last as long as a query, such as an option without effect.

Spark creates readers and writers for each task and each batch, in processes that it reuses.
"""

import logging
from functools import lru_cache

logger = logging.getLogger(__name__)


@lru_cache(maxsize=1_000)
def warn_once(message: str) -> None:
    """Log a warning, unless this process has logged the same one recently."""
    logger.warning("%s", message)
