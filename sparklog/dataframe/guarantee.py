"""What is promised of rows that are written, and the options that say so."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.client.config import ProducerConfig
from sparklog.dataframe.errors import DataSourceOptionError
from sparklog.dataframe.given_options import GivenOptions

_GUARANTEE: Final = "deliveryGuarantee"
_APPLICATION_ID: Final = "txnAppId"
_VERSION: Final = "txnVersion"
GUARANTEE_OPTIONS: Final = (_GUARANTEE, _APPLICATION_ID, _VERSION)
_MAX_APPLICATION_ID_LENGTH: Final = 256
_MAX_IN_FLIGHT: Final = 5


class DeliveryGuarantee(Enum):
    """How often a row is in the log when its write has succeeded, whatever failed meanwhile."""

    EXACTLY_ONCE = "exactlyOnce"
    AT_LEAST_ONCE = "atLeastOnce"


@dataclass(frozen=True, slots=True)
class ApplicationVersion:
    """By what an application tells its writes apart, as for Delta tables."""

    application_id: str
    version: int


def delivery_guarantee(given: GivenOptions, producer: ProducerConfig) -> DeliveryGuarantee:
    """Return what is asked for; exactly once unless something else is.

    Raises:
        DataSourceOptionError: it is none of them, or the producer's settings contradict it.
    """
    text = given.text(_GUARANTEE)
    by_name = {each.value.lower(): each for each in DeliveryGuarantee}
    name = (text or DeliveryGuarantee.EXACTLY_ONCE.value).lower().replace("-", "").replace("_", "")
    if name not in by_name:
        choices = " or ".join(each.value for each in DeliveryGuarantee)
        raise DataSourceOptionError(f"Option '{_GUARANTEE}' is '{text}'; it must be {choices}")
    guarantee = by_name[name]
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE and not producer.idempotent:
        setting = "kafka.enable.idempotence=false"
        if producer.acks != -1:
            setting = f"kafka.acks={producer.acks}"
        elif producer.max_in_flight > _MAX_IN_FLIGHT:
            setting = f"kafka.max.in.flight.requests.per.connection={producer.max_in_flight}"
        raise DataSourceOptionError(
            f"Rows can't be written exactly once with {setting}: leave it out, or set "
            f"{_GUARANTEE}={DeliveryGuarantee.AT_LEAST_ONCE.value}"
        )
    return guarantee


def version_of(given: GivenOptions, guarantee: DeliveryGuarantee) -> ApplicationVersion | None:
    """Return by what the write is told from others of its application; None if it isn't.

    Raises:
        DataSourceOptionError: only a part of it is given, or it is of no use.
    """
    application_id, version = given.text(_APPLICATION_ID), given.integer(_VERSION, 0)
    if application_id is None and version is None:
        return None
    if application_id is None or version is None:
        raise DataSourceOptionError(f"Options '{_APPLICATION_ID}' and '{_VERSION}' must be given together")
    if not 0 < len(application_id) <= _MAX_APPLICATION_ID_LENGTH:
        raise DataSourceOptionError(
            f"Option '{_APPLICATION_ID}' must have 1 to {_MAX_APPLICATION_ID_LENGTH} characters"
        )
    if guarantee is not DeliveryGuarantee.EXACTLY_ONCE:
        raise DataSourceOptionError(
            f"Option '{_APPLICATION_ID}' has writes that were made before left out, which takes "
            f"{_GUARANTEE}={DeliveryGuarantee.EXACTLY_ONCE.value}"
        )
    return ApplicationVersion(application_id, version)
