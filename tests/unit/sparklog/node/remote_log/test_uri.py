"""The URI of the tier: what is taken, and what is refused before anything is opened."""

import pytest

from sparklog.node.remote_log.uri import RemoteUriError, parse_remote_uri


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        ("s3://bucket/some/prefix", "s3://bucket/some/prefix"),
        ("s3a://bucket//some/prefix/", "s3://bucket/some/prefix"),
        ("S3://bucket", "s3://bucket"),
        ("gs://bucket/prefix", "gs://bucket/prefix"),
        ("azure://container/prefix", "az://container/prefix"),
        ("abfss://files@account.dfs.core.windows.net/p", "abfss://files@account.dfs.core.windows.net/p"),
        ("file:///var/lib/tier/", "file:///var/lib/tier"),
        ("file://localhost/var/a%20tier", "file:///var/a tier"),
    ],
)
def test_uri_of_a_store_has_one_spelling(given: str, parsed: str) -> None:
    """Applications compare prefixes by their spelling, in messages and in the owner's object."""
    assert str(parse_remote_uri(given)) == parsed


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("hdfs://namenode/tier", "compare-and-swap"),
        ("ftp://host/tier", "'ftp' is no scheme"),
        ("/var/lib/tier", "no scheme"),
        ("", "no scheme"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/a/../b", "'..'"),
        ("file://host/tier", "no host, here 'host'"),
        ("file:tier", "absolute"),
        ("file:///", "not the root"),
        ("s3://[bucket/p", "not a URI"),
    ],
)
def test_uri_of_no_store_is_refused_with_its_key_and_examples(uri: str, reason: str) -> None:
    """A typo shows before a cluster starts, with what would have been right."""
    with pytest.raises(RemoteUriError) as refused:
        parse_remote_uri(uri)
    message = str(refused.value)
    assert message.startswith("sparklog.remote.uri")
    assert reason in message
    assert "s3://bucket/prefix" in message


@pytest.mark.parametrize(
    "uri", ["s3://key:secret@bucket/p", "s4://key:secret@bucket/p", "az://container/p?sig=secret"]
)
def test_uri_with_credentials_is_refused_without_repeating_them(uri: str) -> None:
    """The message goes into logs, as the URI would."""
    with pytest.raises(RemoteUriError) as refused:
        parse_remote_uri(uri)
    assert "secret" not in str(refused.value)
    assert "sparklog.remote.option." in str(refused.value)
