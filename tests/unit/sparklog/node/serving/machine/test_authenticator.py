"""The authentication of a connection: what is served in which state, and how it goes on."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from sparklog.node.acls.acl import Principal
from sparklog.node.security.sasl.mechanism import SaslError
from sparklog.node.serving.machine.authenticator import (
    AuthenticateAnswer,
    Authenticator,
    Mechanisms,
    SaslState,
)
from sparklog.node.serving.requests import ANONYMOUS
from sparklog.protocol.codec.apis import ApiKey
from sparklog.protocol.errors import ErrorCode, KafkaError

ANN, BOB = Principal("User", "ann"), Principal("User", "bob")
NONE, ILLEGAL = ErrorCode.none, ErrorCode.illegal_sasl_state


class Knock:
    """A mechanism: `who's there` is answered, then a name is believed, and `no` is refused."""

    def __init__(self, expires_ms: int | None = None) -> None:
        self.principal: Principal | None = None
        self.expires_ms = expires_ms

    def respond(self, token: bytes) -> bytes:
        if token == b"knock":
            return b"who's there?"
        if token == b"no":
            raise SaslError("it says no")
        self.principal = Principal("User", token.decode())
        return b"come in"


def authenticator(
    principal: Principal | None = None,
    begin: Callable[[], Knock] = Knock,
    **max_reauthentication_ms: int,
) -> Authenticator:
    """One of a listener that offers KNOCK and KNOCK-2, and has INSIDE beside them."""
    offered = () if principal is not None else ("KNOCK", "KNOCK2")
    mechanisms = dict.fromkeys((*offered, "INSIDE"), begin)
    return Authenticator(Mechanisms(mechanisms, offered, max_reauthentication_ms), principal)


def authenticated(name: str, mechanism: str = "KNOCK", **max_reauthentication_ms: int) -> Authenticator:
    machine = authenticator(**max_reauthentication_ms)
    assert machine.handshake(mechanism, 1, 0) is NONE
    answer = machine.authenticate(name.encode(), 0)
    assert answer.error_code is NONE
    assert answer.session_lifetime_ms == max_reauthentication_ms.get(mechanism, 0)
    return machine


def served(machine: Authenticator) -> set[int]:
    """Return what would be served of a connection in this state, without a trace."""
    found = set()
    for api_key in ApiKey:
        state = machine.state
        try:
            machine.check(api_key)
        except KafkaError as error:
            assert error.error_code is ILLEGAL
        else:
            found.add(int(api_key))
        machine.state = state
    return found


def test_exchange_leads_to_a_principal_in_order() -> None:
    """Before the handshake, within the exchange and after it, only what belongs there is served."""
    machine = authenticator()
    assert (machine.principal, served(machine)) == (None, {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE})
    assert machine.handshake("KNOCK", 1, 0) is NONE
    assert served(machine) == {ApiKey.SASL_AUTHENTICATE}
    assert machine.authenticate(b"knock", 0) == AuthenticateAnswer(b"who's there?")
    assert (machine.principal, served(machine)) == (None, {ApiKey.SASL_AUTHENTICATE})
    assert machine.authenticate(b"ann", 0) == AuthenticateAnswer(b"come in")
    assert (machine.principal, machine.state) == (ANN, SaslState.COMPLETE)


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.FETCH, ApiKey.SASL_AUTHENTICATE, -1, 999])
def test_anything_else_before_the_handshake_is_the_end(api_key: int) -> None:
    """State confusion: a connection that was refused once is not served what it was to have asked first."""
    machine = authenticator()
    with pytest.raises(KafkaError, match="ILLEGAL_SASL_STATE"):
        machine.check(api_key)
    assert served(machine) == set()


def test_api_versions_is_answered_once_and_then_only_the_handshake() -> None:
    """Who never logs in has nothing worked out for him again and again; Kafka closes the connection, too."""
    machine = authenticator()
    machine.check(ApiKey.API_VERSIONS)  # refused: in a version that is not there, it is asked for again
    machine.check(ApiKey.API_VERSIONS)
    machine.versions_sent()
    assert served(machine) == {ApiKey.SASL_HANDSHAKE}
    assert machine.handshake("KNOCK", 1, 0) is NONE
    machine.authenticate(b"ann", 0)
    machine.versions_sent()  # a client that has logged in may ask as often as it likes
    assert (machine.principal, machine.state) == (ANN, SaslState.COMPLETE)


def test_second_handshake_within_an_exchange_is_the_end() -> None:
    """Nobody begins anew with another mechanism half-way."""
    machine = authenticator()
    machine.handshake("KNOCK", 1, 0)
    with pytest.raises(KafkaError, match="state AUTHENTICATE"):
        machine.check(ApiKey.SASL_HANDSHAKE)
    assert served(machine) == set()


def test_mechanism_that_is_not_there_is_the_end() -> None:
    """The client is told which there are."""
    machine = authenticator()
    assert machine.handshake("GSSAPI", 1, 0) is ErrorCode.unsupported_sasl_mechanism
    assert (machine.principal, served(machine)) == (None, set())


def test_failure_tells_the_client_no_more_than_that_it_is_one() -> None:
    """Whether the user exists is for the log."""
    machine = authenticator()
    machine.handshake("KNOCK", 1, 0)
    assert machine.authenticate(b"no", 0) == AuthenticateAnswer(
        error_code=ErrorCode.sasl_authentication_failed,
        client_message="Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism KNOCK",
        reason="it says no",
    )
    assert (machine.principal, served(machine)) == (None, set())


def test_listener_that_asks_nobody_lets_only_those_inside_say_who_they_are() -> None:
    """As in Kafka a handshake there is illegal, and the connection goes on as it was."""
    machine = authenticator(ANONYMOUS)
    assert machine.principal == ANONYMOUS
    assert machine.handshake("KNOCK", 1, 0) is ILLEGAL
    assert machine.authenticate(b"ann", 0).error_code is ILLEGAL
    assert machine.principal == ANONYMOUS
    assert machine.handshake("INSIDE", 1, 0) is NONE
    assert (machine.principal, served(machine)) == (None, {ApiKey.SASL_AUTHENTICATE})
    assert machine.authenticate(b"ann", 0).error_code is NONE
    assert machine.principal == ANN


def test_failed_login_inside_leaves_nobody_behind() -> None:
    """Who tried to be more than anonymous and could not is not served as that either."""
    machine = authenticator(ANONYMOUS)
    machine.handshake("INSIDE", 1, 0)
    machine.authenticate(b"no", 0)
    assert (machine.principal, served(machine)) == (None, set())


def test_session_without_an_end_is_not_renewed() -> None:
    """As in Kafka: re-authentication is there only where connections.max.reauth.ms is."""
    machine = authenticated("ann")
    assert machine.handshake("KNOCK", 1, 5_000) is ILLEGAL
    assert machine.principal == ANN


def test_session_with_an_end_is_renewed_by_the_same_user() -> None:
    """KIP-368; not more than once a second, and nothing is served in between."""
    machine = authenticated("ann", KNOCK=60_000)
    assert machine.handshake("KNOCK", 1, 5_000) is NONE
    assert (machine.principal, served(machine)) == (None, {ApiKey.SASL_AUTHENTICATE})
    assert machine.authenticate(b"ann", 0) == AuthenticateAnswer(b"come in", session_lifetime_ms=60_000)
    assert machine.principal == ANN
    assert machine.handshake("KNOCK", 1, 5_999) is ILLEGAL
    assert machine.principal == ANN
    assert machine.handshake("KNOCK", 1, 6_000) is NONE


@pytest.mark.parametrize(
    ("mechanism", "name", "client_message"),
    [
        ("KNOCK", "bob", "Cannot change principals during re-authentication from User.ann: User.bob"),
        (
            "KNOCK2",
            "ann",
            "SASL mechanism 'KNOCK2' requested by client is not supported for re-authentication of mechanism "
            "'KNOCK'",
        ),
    ],
)
def test_renewal_as_somebody_else_is_the_end(mechanism: str, name: str, client_message: str) -> None:
    """Whatever was decided for the connection was decided for the first."""
    machine = authenticated("ann", KNOCK=60_000)
    assert machine.handshake(mechanism, 1, 0) is NONE
    answer = machine.authenticate(name.encode(), 0)
    assert (answer.error_code, answer.client_message) == (
        ErrorCode.sasl_authentication_failed,
        client_message,
    )
    assert (machine.principal, served(machine)) == (None, set())


def test_session_that_is_over_leaves_only_its_renewal() -> None:
    """And that, too, only as who one was."""
    machine = authenticated("ann", KNOCK=60_000)
    machine.expire()
    assert (machine.principal, served(machine)) == (None, {ApiKey.SASL_HANDSHAKE})
    assert machine.handshake("KNOCK", 1, 61_000) is NONE
    assert machine.authenticate(b"bob", 0).error_code is ErrorCode.sasl_authentication_failed
    machine = authenticated("ann", KNOCK=60_000)
    machine.expire()
    assert machine.handshake("KNOCK", 1, 61_000) is NONE
    assert machine.authenticate(b"ann", 0).session_lifetime_ms == 60_000
    assert machine.principal == ANN


@pytest.mark.parametrize(
    ("expires_ms", "configured_ms", "lifetime_ms"),
    [(None, 0, 0), (None, 500, 500), (3_000, 0, 2_000), (3_000, 500, 500), (1_200, 500, 200), (900, 0, 1)],
)
def test_session_ends_with_the_credentials_or_sooner(
    expires_ms: int | None, configured_ms: int, lifetime_ms: int
) -> None:
    """A token that has run out while it was checked is good for a moment, not for ever."""
    machine = authenticator(begin=lambda: Knock(expires_ms), KNOCK=configured_ms)
    machine.handshake("KNOCK", 1, 0)
    assert machine.authenticate(b"ann", wall_clock_ms=1_000).session_lifetime_ms == lifetime_ms


@pytest.mark.parametrize(("expires_ms", "configured_ms"), [(None, 2**63 - 1), (1000 << 48, 0)])
def test_session_that_is_as_good_as_endless_can_be_told_and_counted(
    expires_ms: int | None, configured_ms: int
) -> None:
    """Whoever means never by a large number: answers had no room for it, and Java counts nanoseconds."""
    machine = authenticator(begin=lambda: Knock(expires_ms), KNOCK=configured_ms)
    machine.handshake("KNOCK", 1, 0)
    lifetime_ms = machine.authenticate(b"ann", wall_clock_ms=1_000).session_lifetime_ms
    a_century_ms = timedelta(days=36_500) // timedelta(milliseconds=1)
    assert lifetime_ms == a_century_ms < 2**63 // 1_000_000


def test_oldest_handshake_is_followed_by_bare_tokens() -> None:
    """KIP-43's clients send a token without a header; it is served as if it had one."""
    machine = authenticator()
    frame = memoryview(b"ann")
    assert machine.request_frame(frame) is frame
    machine.handshake("KNOCK", 0, 0)
    assert machine.takes_bare_tokens
    assert (
        bytes(machine.request_frame(frame)) == b"\x00\x24\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x03ann"
    )
    machine.authenticate(b"ann", 0)
    assert not machine.takes_bare_tokens
