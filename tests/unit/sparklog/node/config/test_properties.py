"""Properties files, ours and the user's."""

from pathlib import Path

import pytest

from sparklog.node.config import BROKER_KEYS, BrokerConfig, PropertiesError, read_properties

SHIPPED = Path(__file__).parents[5] / "conf" / "broker.properties"


def written(directory: Path, text: str | bytes) -> Path:
    path = directory / "broker.properties"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_read_properties_understands_javas_notation(tmp_path: Path) -> None:
    """Comments, both separators, continuation lines and escapes, as Kafka's own files use them."""
    path = written(tmp_path, "# c\n! c\na=1\nb : two\nlist=x,\\\n   y\nu=\\u00e9\nempty=\nflag\n")
    assert read_properties(path) == {"a": "1", "b": "two", "list": "x,y", "u": "é", "empty": "", "flag": ""}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a=1\n\n# c\na=2\n", "broker.properties, line 4: a is set a second time"),
        ("a=1\nlong=\\\n  x\n=3\n", "broker.properties, line 4: a value without a key"),
        ("a=1\nb=\\u12\n", "broker.properties, line 2: "),
        (b"a=\xff\xfe", "broker.properties: .*utf-8"),
    ],
)
def test_read_properties_of_a_bad_file_names_file_and_line(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    """The user must find the place."""
    with pytest.raises(PropertiesError, match=said):
        read_properties(written(tmp_path, text))


def test_read_properties_of_a_missing_file_names_it(tmp_path: Path) -> None:
    """And does not go on without it."""
    with pytest.raises(PropertiesError, match=r"nowhere\.properties"):
        read_properties(tmp_path / "nowhere.properties")


def test_shipped_file_changes_nothing_until_it_is_edited() -> None:
    """Every key stands in it commented out."""
    assert read_properties(SHIPPED) == {}
    assert BrokerConfig.from_mapping(read_properties(SHIPPED)) == BrokerConfig.from_mapping({})


def test_shipped_file_shows_every_key_with_its_default(tmp_path: Path) -> None:
    """A key that is added, renamed or given another default must change the file too."""
    uncommented = "\n".join(
        line[1:] for line in SHIPPED.read_text().splitlines() if line.startswith("#") and line[1:2].isalpha()
    )
    assert read_properties(written(tmp_path, uncommented)) == {
        key.name: key.format(key.default) or "" for key in BROKER_KEYS.values() if not key.assigned
    }
