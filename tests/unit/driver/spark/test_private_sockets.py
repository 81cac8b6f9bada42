"""What a session is made with, so that strangers on its hosts reach nothing of PySpark's."""

import pytest

from driver.spark.private_sockets import have_private_sockets

ENABLED = "spark.python.unix.domain.socket.enabled"
DIRECTORY = "spark.python.unix.domain.socket.dir"


class Settings(dict[str, str]):
    """A SparkConf without a JVM."""

    def setIfMissing(self, key: str, value: str) -> None:  # noqa: N802 - Spark's name
        self.setdefault(key, value)


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({}, {ENABLED: "true"}),
        ({"spark.master": "spark://driver:7077"}, {ENABLED: "true"}),
        ({ENABLED: "false"}, {}),
        # A container's temporary directory has too long a path for a socket.
        ({"spark.master": "yarn"}, {ENABLED: "true", DIRECTORY: "/tmp"}),
        ({"spark.master": "yarn", DIRECTORY: "/run/sparklog"}, {ENABLED: "true"}),
    ],
)
def test_session_is_made_with_socket_files_unless_its_settings_say_otherwise(
    given: dict[str, str], added: dict[str, str]
) -> None:
    """Nobody has to know of it who submits jobs/serve.py."""
    settings = Settings(given)
    have_private_sockets(settings)  # type: ignore[arg-type]
    assert settings == {**given, **added}
