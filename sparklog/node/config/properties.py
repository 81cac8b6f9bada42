"""Java properties files, which hold configuration under Kafka's keys."""

from pathlib import Path

import javaproperties

from sparklog.protocol.errors import ErrorCode, KafkaError


class PropertiesError(KafkaError):
    """An unreadable properties file; the message names the file and the line."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_config, message)


def read_properties(path: Path) -> dict[str, str]:
    """Return the keys and values of a properties file.

    Raises:
        PropertiesError: the file cannot be read, a line is malformed, or a key occurs twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PropertiesError(f"{path}: {error}") from error
    values: dict[str, str] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                if not element.key:
                    raise PropertiesError(f"{path}, line {line}: a value without a key")
                if element.key in values:
                    raise PropertiesError(f"{path}, line {line}: {element.key} is set a second time")
                values[element.key] = element.value
            line += element.source.count("\n")
    except javaproperties.InvalidUEscapeError as error:
        raise PropertiesError(f"{path}, line {line}: {error}") from error
    return values
