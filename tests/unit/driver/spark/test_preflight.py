"""What is checked before a job is submitted."""

import os
import stat
from pathlib import Path

import pytest

from sparklog.driver.spark import preflight
from sparklog.hosting import NoWritableDirectoryError, StartError
from sparklog.node.config import BrokerConfig
from sparklog.node.config.definition import ConfigError
from tests.certificates import Authority, server_keys
from tests.unit.driver.spark.java_virtual_machine import context_of


def with_keys(keys: dict[str, str]) -> BrokerConfig:
    """A configuration whose second listener is one of TLS, for brokers alone."""
    return BrokerConfig.from_mapping(
        {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            **{f"listener.name.outside.{key}": value for key, value in keys.items()},
        }
    )


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "ssl.keystore.location: a listener of SSL or SASL_SSL needs a private key"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "name all three"),
        ({"ssl.principal.mapping.rules": "nonsense"}, "is not a rule"),
    ],
)
def test_certificates_of_brokers_that_are_of_no_use_are_refused_by_the_driver(
    keys: dict[str, str], said: str, tmp_path: Path
) -> None:
    """Else each broker would end, be started anew, and end again, with its reason in a log of its own."""
    given = server_keys(Authority().certify(), tmp_path) | keys if keys else {}
    with pytest.raises(ConfigError, match=said):
        preflight.check_certificates(with_keys(given))


def test_certificates_that_are_on_the_brokers_hosts_alone_are_left_to_them(tmp_path: Path) -> None:
    """The driver does not listen there, and may not have been given their keys."""
    keys = server_keys(Authority().certify(), tmp_path)
    preflight.check_certificates(with_keys(keys))
    Path(keys["ssl.keystore.location"]).unlink()
    preflight.check_certificates(with_keys(keys))


def test_configuration_that_spark_would_write_into_files_is_refused_by_its_longest_key() -> None:
    """The secret of driver and brokers travels with it, and is to be in no file."""
    context = context_of(None)
    context._jvm.PythonUtils.getBroadcastThreshold.return_value = 1 << 20
    inline = BrokerConfig.from_mapping({"ssl.truststore.certificates": "x" * 900_000, "num.partitions": "1"})
    preflight.check_size(context, inline)
    inline = BrokerConfig.from_mapping({"ssl.truststore.certificates": "x" * (1 << 20)})
    with pytest.raises(StartError, match=r"Instead of what is in ssl\.truststore\.certificates"):
        preflight.check_size(context, inline)


def test_temporary_directory_that_another_user_has_made_is_refused_and_one_that_is_named_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He could read what lies there, and change it; in /tmp everybody may take a name first."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(0o777)
    preflight.check_directories([theirs], temporary=True)
    owner = theirs.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(NoWritableDirectoryError, match=rf"id {owner}, .* log_directories or log\.dirs"):
        preflight.check_directories([theirs], temporary=True)
    link = tmp_path / "link"
    link.symlink_to("/")
    with pytest.raises(NoWritableDirectoryError, match="link belongs to"):
        preflight.check_directories([link], temporary=True)
    preflight.check_directories([theirs])


def test_directories_for_logs_are_made_for_this_user_alone_and_those_that_are_there_are_let_be(
    tmp_path: Path,
) -> None:
    """Nobody else reads records from the disk; what a user has made for a group of his stays so."""
    own, shared = tmp_path / "a" / "b", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o775)
    preflight.check_directories([own, shared])
    modes = [stat.S_IMODE(directory.stat().st_mode) for directory in (own.parent, own, shared)]
    assert modes == [0o700, 0o700, 0o775]
