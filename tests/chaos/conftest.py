"""What a run of faults must leave behind in the process that had it: nothing."""

from collections.abc import Iterator

import pytest

from tests.process_resources import let_go, nothing_grows


@pytest.fixture(autouse=True)
def held(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test after which descriptors, threads or memory are still held that were not before."""
    with nothing_grows(request.session):
        yield
        let_go(caplog.get_records("call"))
