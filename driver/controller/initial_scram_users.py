"""The SCRAM users of a new cluster, from a file that the driver reads once.

A line is an argument of `kafka-storage.sh format --add-scram`; empty lines and comments (#) are skipped:

    SCRAM-SHA-512=[name=admin,password=s3cret]
    SCRAM-SHA-256=[name=ann,iterations=8192,salt="N3E=",saltedpassword="YCE="]

No error shows any of a line: it has secrets. Source: Kafka's ScramParser.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparklog.driver.controller.machine.requests.scram_credentials import MAX_ITERATIONS
from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.metadata.scram_records import scram_credential_record
from sparklog.node.security.sasl.scram import MIN_ITERATIONS, SCRAM_ALGORITHMS, ScramCredential

_LINE: Final = re.compile(r"\s*(?P<mechanism>[^=\s]+)=\[(?P<components>.*)\]\s*")
_KNOWN: Final = frozenset({"name", "password", "saltedpassword", "salt", "iterations"})


class InitialUsersError(ValueError):
    """A malformed file of users; the message has the line's number, and none of its text."""


def read_initial_scram_users(path: Path) -> list[UserScramCredentialRecord]:
    """Return the records of the users of a file. Blocks.

    Raises:
        InitialUsersError: a line is malformed.
        OSError: the file cannot be read.
    """
    records: dict[tuple[str, int], UserScramCredentialRecord] = {}
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        raise InitialUsersError(f"{path} is not a text file") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            record = _record(line)
        except ValueError as error:
            raise InitialUsersError(f"{path}, line {number}: {error}") from None
        if (record.name, record.mechanism) in records:
            raise InitialUsersError(
                f"{path}, line {number}: this user has a password by this mechanism already"
            )
        records[record.name, record.mechanism] = record
    return list(records.values())


def _record(line: str) -> UserScramCredentialRecord:
    match = _LINE.fullmatch(line)
    if match is None or match["mechanism"] not in SCRAM_ALGORITHMS:
        raise ValueError(f"expected: mechanism=[name=...,password=...], by {' or '.join(SCRAM_ALGORITHMS)}")
    mechanism, given = match["mechanism"], _components(match["components"])
    name, password = given.get("name"), given.get("password")
    if not name:
        raise ValueError("the name is missing")
    iterations = int(given.get("iterations", MIN_ITERATIONS)) if given.get("iterations", "0").isdigit() else 0
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salt = _decoded(given["salt"], "salt") if "salt" in given else None
    if password is not None:
        if not password:
            raise ValueError("the password is empty")
        credential = ScramCredential.of_password(mechanism, password, iterations, salt)
    elif salt is None or "saltedpassword" not in given:
        raise ValueError("a password is missing, or a saltedpassword with its salt")
    else:
        salted_password = _decoded(given["saltedpassword"], "saltedpassword")
        credential = ScramCredential.of_salted_password(mechanism, salted_password, iterations, salt)
    return scram_credential_record((name, mechanism), credential)


def _components(text: str) -> Mapping[str, str]:
    components = {}
    for component in text.split(","):
        name, equals, value = component.partition("=")
        if not equals or name.strip() not in _KNOWN:
            raise ValueError(
                f"a component is none of {', '.join(sorted(_KNOWN))} (no value can have a comma in it)"
            )
        value = value.strip()
        components[name.strip()] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return components


def _decoded(text: str, name: str) -> bytes:
    try:
        decoded = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    if not decoded:
        raise ValueError(f"the {name} is not in base 64, or empty")
    return decoded
