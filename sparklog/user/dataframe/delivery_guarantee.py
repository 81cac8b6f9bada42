"""The delivery guarantee of a write, and its options."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sparklog.user.client.config import ProducerConfig
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.given_options import GivenOptions

_GUARANTEE: Final = "deliveryGuarantee"
_APPLICATION_ID: Final = "txnAppId"
_VERSION: Final = "txnVersion"
GUARANTEE_OPTIONS: Final = (_GUARANTEE, _APPLICATION_ID, _VERSION)
_MAX_APPLICATION_ID_LENGTH: Final = 256
_MAX_IN_FLIGHT: Final = 5


class DeliveryGuarantee(Enum):
    """Number of copies of a row in the log after a successful write, despite failures."""

    EXACTLY_ONCE = "exactlyOnce"
    AT_LEAST_ONCE = "atLeastOnce"


@dataclass(frozen=True, slots=True)
class ApplicationVersion:
    """Identity of an application's write, as for Delta tables."""

    application_id: str
    version: int


def delivery_guarantee(given: GivenOptions, producer: ProducerConfig) -> DeliveryGuarantee:
    """Return the requested guarantee; exactly once by default.

    Raises:
        DataSourceOptionError: it is unknown, or the producer's settings contradict it.
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
    """Return the identity of the write within its application; None if it has none.

    Raises:
        DataSourceOptionError: only a part of it is given, or it has no effect.
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
            f"Option '{_APPLICATION_ID}' leaves out repeated writes, which takes "
            f"{_GUARANTEE}={DeliveryGuarantee.EXACTLY_ONCE.value}"
        )
    return ApplicationVersion(application_id, version)
