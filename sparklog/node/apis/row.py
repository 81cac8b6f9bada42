"""The row of an API: all that both sides know of it.

The time at which a row takes effect: versions and `many` when a listener starts, guards when its authorizer
is made, the refusal with each request that is refused as a whole.
"""

from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from sparklog.node.apis.parts import Parts
from sparklog.node.authorization.guards.guard import ApiGuard, Guard, answer_to, pass_on
from sparklog.node.config import BrokerConfig
from sparklog.node.serving.requests import Request, Response
from sparklog.protocol.codec.allowance import USUAL_TIMES
from sparklog.protocol.codec.apis import ApiKey, SupportedVersions, known_versions
from sparklog.protocol.codec.fixed.message import FixedReader, entity_of
from sparklog.protocol.errors import KafkaError

Refused: TypeAlias = Callable[[Any, KafkaError], Response | Awaitable[Response]]
"""Makes the response to a request body, of any version, that is refused as a whole: Kafka's getErrorResponse.

The response has the version of the body.
"""

IsClusterAction: TypeAlias = Callable[[Request], bool]
"""Whether a request is reserved for the application's own driver and brokers."""


def always(request: Request) -> bool:
    """Reserve all requests of an API for driver and brokers."""
    return True


class Side(Enum):
    BROKER = "broker"
    """A broker's listeners for clients and other brokers."""
    CONTROLLER = "controller"
    """The controller's listener, which is the bootstrap address too."""
    QUORUM = "quorum"
    """A broker's CONTROLLER listener, for candidates and leaders of the metadata quorum."""


@dataclass(frozen=True, slots=True)
class GuardByConfig:
    make: Callable[[BrokerConfig], ApiGuard | None]


@dataclass(frozen=True, slots=True)
class Offer:
    """How the listeners of one side offer an API."""

    guard: ApiGuard | GuardByConfig | None = None
    """None where Kafka asks for no permission, or elsewhere: a broker forwards changes of the cluster, and
    the controller asks in the name of the client; Fetch and DescribeTopicPartitions ask for each partition.
    """
    many: bool = True
    """Whether a request may have more items than are read in one go; otherwise such a request is refused."""
    cluster_action: IsClusterAction | None = None
    """Selects the requests that only driver and brokers may make, with an authorizer or without."""
    cluster_action_unless_authorized: IsClusterAction | None = None
    """The same where no authorizer is configured, which would decide."""
    under_lease: bool = False
    """Whether a broker answers only while it holds its lease."""
    answers_errors: bool = False
    """Whether a KafkaError of the handler is answered by the row's refusal; else it ends the connection."""
    forwards: bool = False
    """Whether brokers forward it to the controller."""
    versions: SupportedVersions | None = None
    """The versions on these listeners, if they are not those of the row."""
    fixed_reader: Callable[[int], FixedReader | None] | None = None
    """Returns the reader of a version's requests in their usual shape, for handlers that take these."""

    def api_guard(self, config: BrokerConfig) -> ApiGuard | None:
        return self.guard.make(config) if isinstance(self.guard, GuardByConfig) else self.guard


def in_response(body: Any, error: KafkaError) -> Response:
    """Refuse a request by the error of the response itself, as most APIs do."""
    return answer_to(body, error_code=error.error_code, error_message=error.message)


FORWARDED: Final = Offer(answers_errors=True, forwards=True)
"""The offer of a broker that forwards the request to the controller."""


@dataclass(frozen=True, slots=True)
class ApiRow:
    api_key: ApiKey
    versions: SupportedVersions | None = None
    """The versions that clients are offered (those of Kafka 4.3), by brokers and at the bootstrap address
    alike; None if the API is for driver and brokers only, which speak all versions known here.

    Some clients, kafka-python among them, take the versions of the first address for those of the cluster.
    """
    _: KW_ONLY
    broker: Offer | None = None
    controller: Offer | None = None
    """None: the controller's listener has the versions, for brokers' sake, and refuses to answer."""
    quorum: Offer | None = None
    answered_by_listener: bool = False
    """Whether every listener answers it by itself, before a connection has a principal."""
    also_in_envelope: bool = False
    """Whether the controller also answers it in an Envelope, although brokers answer it themselves."""
    refused: Refused = in_response
    parts: Parts | None = None
    """How the controller divides a large request; None if it decides each request as one."""
    strict_mutations_since: int | None = None
    """The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599); None if the API creates and
    deletes no partitions."""
    memory_times: int = USUAL_TIMES
    """Peak memory of a request and its answer, in multiples of the memory that its items are counted for."""

    @property
    def forwarded(self) -> bool:
        return self.broker is not None and self.broker.forwards

    @property
    def is_in_envelope(self) -> bool:
        return self.forwarded or self.also_in_envelope

    def offer(self, side: Side) -> Offer | None:
        offers = {Side.BROKER: self.broker, Side.CONTROLLER: self.controller, Side.QUORUM: self.quorum}
        return offers[side]

    def versions_at(self, side: Side) -> SupportedVersions:
        offer = self.offer(side)
        if offer is not None and offer.versions is not None:
            return offer.versions
        return self.versions or known_versions(self.api_key)

    def refuse(self, request: Request, error: KafkaError) -> Any:
        return self.refused(entity_of(request.body), error)

    def guard(self, side: Side, config: BrokerConfig) -> Guard:
        offer = self.offer(side)
        guard = None if offer is None else offer.api_guard(config)
        if guard is None:
            return pass_on
        refuse = self.refuse
        return lambda access, request, handler: guard(refuse, access, request, handler)
