"""The store of a worker process, whose client may hang."""

import asyncio
from pathlib import Path

import pytest

from sparklog.node.remote_log.object_store import StoreUnavailableError
from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.user.dataframe.remote.store_thread import StoreThread


def test_read_that_does_not_end_is_given_up_by_name(tmp_path: Path) -> None:
    """A task would hold its slot for ever; brokers have the records, too."""
    store = StoreThread(StoreLocation(tmp_path.as_uri()))
    (tmp_path / "object").write_bytes(b"data")
    try:
        with pytest.raises(StoreUnavailableError, match=r"no answer within 0\.01 s"):
            store.read(asyncio.Event().wait(), limit_s=0.01)
        assert store.read(store.store.get("object")).data == b"data"
    finally:
        store.close()
