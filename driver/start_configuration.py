"""The configuration of a start in the form for brokers: Kafka's keys, and texts.

Properties files contain text only, and Kafka's own parsers expect text. Directories are made absolute:
executors have temporary working directories of their own.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sparklog.hosting import StartError
from sparklog.node.config import read_properties

_METADATA_DIRECTORY: Final = "metadata.log.dir"


def start_configuration(
    config: Mapping[str, object] | str | Path | None,
    log_directories: str | Path | Sequence[str | Path] | None,
) -> dict[str, str]:
    """Return the keys of a mapping or a properties file, with `log_directories` in place of its log.dirs.

    A key whose value is None is left out.

    >>> start_configuration({"auto.create.topics.enable": True, "log.dirs": ["/a", "/b"]}, None)
    {'auto.create.topics.enable': 'true', 'log.dirs': '/a,/b'}

    Raises:
        StartError: A directory's name is empty or contains a comma.
        PropertiesError: The file is malformed.
    """
    given = read_properties(Path(config)) if isinstance(config, str | Path) else dict(config or {})
    texts = {key: _as_text(value) for key, value in given.items() if value is not None}
    for key in ("log.dirs", "log.dir"):
        value = given.get(key)
        if value is not None and value != "":  # Kafka treats an empty value as unset
            texts[key] = _joined(key, value.split(",") if isinstance(value, str) else _listed(value))
    if texts.get(_METADATA_DIRECTORY):
        texts[_METADATA_DIRECTORY] = str(Path(texts[_METADATA_DIRECTORY].strip()).absolute())
    if log_directories is not None:
        texts["log.dirs"] = _joined("log_directories", _listed(log_directories))
    return texts


def _joined(name: str, paths: Sequence[object]) -> str:
    """Return directories as one text, as in Kafka."""
    texts = [str(path).strip() for path in paths]
    if not all(texts) or not texts:
        raise StartError(
            f"{name} names no directory, or an empty name among several: name all, or leave it out for "
            "temporary logs"
        )
    for text in texts:
        if "," in text:
            raise StartError(
                f"{name}: '{text}' has a comma, which separates directories: give a list of paths without one"
            )
    return ",".join(str(Path(text).absolute()) for text in texts)


def _listed(value: object) -> Sequence[object]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _as_text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_as_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
