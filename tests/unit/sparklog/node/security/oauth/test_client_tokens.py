"""Where clients have their tokens from."""

import base64
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.node.security.oauth import client_tokens
from sparklog.node.security.oauth.client_tokens import BearerLogin, ClientCredentials, OwnTokens, TokenFile
from sparklog.node.security.oauth.http import ProviderError
from sparklog.node.security.oauth.unsecured_tokens import UnsecuredTokens
from sparklog.protocol.errors import ErrorCode, KafkaError
from tests.identity_provider import IdentityProvider

SECRET = "a s3cret: of/ours"


def test_token_of_a_file_is_read_for_every_connection(tmp_path: Path) -> None:
    """Whoever renews it replaces the file and tells nobody."""
    path = tmp_path / "token"
    login = BearerLogin(TokenFile(str(path)), (("traceId", "7"),))
    for token in ("a.b.c", "d.e.f"):
        path.write_text(f" {token}\n")
        assert login("broker:9092").first() == f"n,,\x01auth=Bearer {token}\x01traceId=7\x01\x01".encode()
    for spoil in (lambda: path.write_text("two words"), path.unlink):
        spoil()
        with pytest.raises(KafkaError, match="no token for broker:9092") as failed:
            login("broker:9092")
        assert failed.value.error_code is ErrorCode.sasl_authentication_failed


def test_provider_grants_a_token_once_for_all_connections() -> None:
    """By the client's secret, which is sent and shown nowhere else."""
    provider = IdentityProvider()
    with provider.serving() as address:
        source = ClientCredentials(f"{address}/token", "our id", SECRET, scope="a b", urlencode=True)
        login = pickle.loads(pickle.dumps(BearerLogin(source)))
        firsts = {login("broker:9092").first() for _ in range(3)}
    assert len(firsts) == 1 and SECRET not in repr(login)
    ((path, asked),) = provider.asked
    basic = base64.b64encode(b"our+id:a+s3cret%3A+of%2Fours").decode()
    assert (path, asked) == ("/token", f"Basic {basic} grant_type=client_credentials&scope=a+b")


def test_provider_that_grants_no_token_is_named() -> None:
    """A client whose provider has none for the moment asks again, and shows its secret to nobody."""

    class Silent(IdentityProvider):
        def token(self, **claims: Any) -> str:
            return ""

    with Silent().serving() as address:
        login = BearerLogin(ClientCredentials(f"{address}/token", "id", SECRET))
        with pytest.raises(KafkaError, match=address) as failed:
            login("broker:9092")
    assert failed.value.error_code is ErrorCode.network_exception
    assert SECRET not in str(failed.value)


def test_own_token_says_what_it_is_told_to() -> None:
    """For trying things out against a listener that takes it."""
    token = OwnTokens((("sub", "ann"), ("scope", ("a", "b"))), lifetime_s=60).token()
    assert UnsecuredTokens(required_scopes=("b",)).accepted(token).principal_name == "ann"


def test_token_that_is_good_for_a_while_yet_is_used_when_its_provider_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in Kafka, whose login keeps what it has; a provider that hangs is not asked each time."""
    now_s = 1_000.0
    monkeypatch.setattr(client_tokens, "time", SimpleNamespace(monotonic=lambda: now_s))
    provider = IdentityProvider()
    with provider.serving() as address:
        source = ClientCredentials(f"{address}/token", "id", SECRET)
        token = source.token()
    now_s += 0.9 * 3600
    assert [source.token(), source.token()] == [token, token]
    now_s += 0.2 * 3600
    with pytest.raises(ProviderError):
        source.token()
