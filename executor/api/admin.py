"""Requests that the controller answers: forwarded by the broker, as their rows say.

A broker itself answers only that the controller could not be reached: by the row's refusal with
REQUEST_TIMED_OUT, which Kafka's clients take for "try again". The change may have been made all the same.
Where the controller refuses the broker itself, the error is UNKNOWN_SERVER_ERROR, as in Kafka.
"""

from collections.abc import Mapping

from sparklog.executor.api.services import BrokerServices
from sparklog.node.apis.table import FORWARDED_APIS
from sparklog.node.serving.requests import Handler
from sparklog.protocol.codec.apis import ApiKey


def handlers(services: BrokerServices) -> Mapping[ApiKey, Handler]:
    return dict.fromkeys(FORWARDED_APIS, services.senders.forwarder.forward)
