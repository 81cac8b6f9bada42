"""What the DataFrame source's unit tests have in common."""

import pytest

from sparklog.user.dataframe.warn_once import warn_once


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    """Have this process warn again of what an earlier test has made it warn of."""
    warn_once.cache_clear()
