"""Options that name the object store of another cluster's tier."""

import pytest

from sparklog.node.remote_log.store_location import StoreLocation
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.options import ReadOptions, WriteOptions

GIVEN = {"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}
NAMED = {"sparklog.remote.uri": "s3://b/p", "sparklog.remote.option.Region": "here"}


def test_store_of_another_cluster_is_named_by_options(caplog: pytest.LogCaptureFixture) -> None:
    """Its brokers do not tell; names are case-insensitive, as all options."""
    assert ReadOptions.parse({**GIVEN, **NAMED}, None).store == StoreLocation.of(
        "s3://b/p", {"region": "here"}
    )
    assert ReadOptions.parse({**GIVEN, **NAMED, "remoteread": "FALSE"}, None).store is None
    assert ReadOptions.parse(GIVEN, None).store is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"remoteRead": "yes"}, "must be auto or false"),
        ({"sparklog.remote.option.region": "here"}, "needs 'sparklog.remote.uri' beside it"),
        ({"sparklog.remote.uri": "hdfs://host/p"}, "no compare-and-swap"),
    ],
)
def test_bad_option_of_a_store_is_refused_before_the_query(wrong: dict[str, str], message: str) -> None:
    """A query that silently read through brokers would only be slow."""
    with pytest.raises(DataSourceOptionError, match=message):
        ReadOptions.parse({**GIVEN, **wrong}, None)


def test_options_of_a_store_may_be_given_to_a_write_too() -> None:
    """One map of options serves both."""
    WriteOptions.parse({"topic": "t", "kafka.bootstrap.servers": "127.0.0.1:1", **NAMED}, None)
