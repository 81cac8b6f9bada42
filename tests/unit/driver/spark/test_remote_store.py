"""What a start says of an object store that it can't use."""

import asyncio
from pathlib import Path

import pytest

from sparklog.driver.spark.remote_store import check_remote_store
from sparklog.hosting import RemoteStoreError
from sparklog.node.config import BrokerConfig
from tests.s3_server import s3_server


def with_store(uri: str, **options: str) -> BrokerConfig:
    named = {f"sparklog.remote.option.{name}": value for name, value in options.items()}
    return BrokerConfig.from_mapping({"sparklog.remote.uri": uri, **named})


def test_store_that_can_be_used_is_left_empty(tmp_path: Path) -> None:
    """A probe that stays would be taken for a cluster's by whoever looks into the bucket."""
    check_remote_store(with_store((tmp_path / "bucket").as_uri()))
    assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file() and path.stat().st_size]


def test_cluster_without_a_store_checks_none() -> None:
    """Without the key nothing of the tier runs."""
    check_remote_store(BrokerConfig.from_mapping({}))


def test_store_is_checked_within_a_running_loop(tmp_path: Path) -> None:
    """A notebook's cell runs in one."""

    async def start() -> None:
        check_remote_store(with_store((tmp_path / "bucket").as_uri()))

    asyncio.run(start())


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("hdfs://host/path", "sparklog.remote.uri=hdfs://host/path: HDFS has no compare-and-swap"),
        ("s3://", "it names no bucket"),
    ],
)
def test_uri_of_no_store_is_refused_by_name(uri: str, said: str) -> None:
    """The reason stands in the application's own log, not in a broker's."""
    with pytest.raises(RemoteStoreError, match=said):
        check_remote_store(with_store(uri))


def test_bucket_that_is_not_there_is_refused_before_brokers_start() -> None:
    """Brokers would go on without copying anything, until all disks are lost."""
    with s3_server() as server, pytest.raises(RemoteStoreError, match=r"s3://absent/prefix can't be used: "):
        check_remote_store(with_store("s3://absent/prefix", **server.options))
