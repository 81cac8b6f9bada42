"""What a session is made with, so that strangers on its hosts reach nothing of PySpark's."""

import pytest

from sparklog.driver.spark.private_sockets import have_private_sockets

ENABLED = "spark.python.unix.domain.socket.enabled"
DIRECTORY = "spark.python.unix.domain.socket.dir"


class Settings(dict[str, str]):
    """A SparkConf without a JVM."""

    def setIfMissing(self, key: str, value: str) -> None:  # noqa: N802 - Spark's name
        self.setdefault(key, value)


@pytest.mark.parametrize(
    ("given", "temporary_directory", "added"),
    [
        ({}, "/tmp", {ENABLED: "true"}),
        ({"spark.master": "spark://driver:7077"}, "/var/tmp/spark", {ENABLED: "true"}),
        ({ENABLED: "false"}, "/tmp", {}),
        ({}, f"/home/{'x' * 60}", {ENABLED: "true", DIRECTORY: "/tmp"}),
        ({"spark.master": "yarn"}, "/tmp", {ENABLED: "true", DIRECTORY: "/tmp"}),
        ({"spark.master": "yarn", DIRECTORY: "/run/sparklog"}, "/tmp", {ENABLED: "true"}),
    ],
)
def test_session_is_made_with_socket_files_unless_its_settings_say_otherwise(
    given: dict[str, str], temporary_directory: str, added: dict[str, str]
) -> None:
    """An application that only serves has them by itself, where the kernel takes their paths."""
    settings = Settings(given)
    have_private_sockets(settings, temporary_directory)  # type: ignore[arg-type]
    assert settings == {**given, **added}
