"""Conversion between SCRAM credentials and the records of the metadata log.

Mechanisms have numbers there, and in the requests that change them (ScramMechanism).
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from sparklog.node.metadata.schemas import UserScramCredentialRecord
from sparklog.node.security.sasl.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential

ScramKey: TypeAlias = tuple[str, str]
"""User name and mechanism."""

SCRAM_MECHANISMS: Final[Mapping[int, str]] = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
MECHANISM_NUMBERS: Final[Mapping[str, int]] = {name: number for number, name in SCRAM_MECHANISMS.items()}


def scram_key(user: str, mechanism: int) -> ScramKey:
    """Return the image key of a SCRAM record: user and mechanism.

    Raises:
        ValueError: the mechanism's number is unknown.
    """
    name = SCRAM_MECHANISMS.get(mechanism)
    if name is None:
        raise ValueError(f"unknown SCRAM mechanism {mechanism}")
    return user, name


def scram_credential_of_record(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def scram_credential_record(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    user, mechanism = key
    return UserScramCredentialRecord(
        name=user,
        mechanism=MECHANISM_NUMBERS[mechanism],
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
