"""BrokerRegistration and BrokerHeartbeat."""

from typing import Any

from kio.schema.broker_heartbeat.v2.response import BrokerHeartbeatResponse

from sparklog.driver.controller.broker_liveness import BrokerLiveness
from sparklog.driver.controller.commit_queue import CommitQueue
from sparklog.driver.controller.machine.controller import Controller
from sparklog.driver.controller.quorum.machine.leader import QuorumLeader
from sparklog.node.clocks import monotonic_ms
from sparklog.node.serving.requests import Deferred, Request, Response
from sparklog.node.serving.throttling import unthrottled
from sparklog.protocol.codec.versions import upgrade
from sparklog.protocol.errors import ErrorCode


class BrokerHandlers:
    """Answers BrokerRegistration and BrokerHeartbeat, and notes the connections of live brokers."""

    def __init__(
        self,
        controller: Controller,
        commit_queue: CommitQueue,
        broker_liveness: BrokerLiveness,
        quorum: QuorumLeader,
    ) -> None:
        self._controller = controller
        self._commit_queue = commit_queue
        self._broker_liveness = broker_liveness
        self._quorum = quorum

    def registration(self, request: Request) -> Deferred:
        """Answer BrokerRegistration when it is committed."""
        return self._decided(request)

    def heartbeat(self, request: Request) -> Response | Deferred:
        """Answer BrokerHeartbeat when the changes that follow from it are committed."""
        if not self._quorum.has_majority(monotonic_ms()):
            # Another driver may be giving this broker's leaderships away: its lease must not be renewed here.
            return unthrottled(
                BrokerHeartbeatResponse,
                error_code=ErrorCode.not_controller,
                is_caught_up=False,
                is_fenced=True,
                should_shut_down=False,
            )
        return self._decided(request)

    def _decided(self, request: Request) -> Deferred:
        broker_id = request.body.broker_id

        def answer(reply: Any) -> None:
            if reply.error_code is ErrorCode.none:
                self._broker_liveness.seen(broker_id, request.connection)
            deferred.complete(reply)

        deferred, body = Deferred(), upgrade(request.body)
        self._commit_queue.submit_parts(lambda: self._controller.handle(body, monotonic_ms()), answer)
        return deferred
