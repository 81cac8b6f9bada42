"""Certificates that driver and brokers make themselves: good among themselves, and for nobody else."""

import ssl

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from sparklog.node.security.inside import ApplicationSecret
from sparklog.node.security.tls.contexts import context_of_server
from sparklog.node.security.tls.inside import INSIDE_NAME, InsideTls
from sparklog.node.security.tls.stores import KeyMaterial
from tests.certificates import Authority
from tests.unit.sparklog.node.security.tls.test_stores import handshake

SEED = ApplicationSecret.new().tls_seed


def test_processes_of_one_application_trust_each_other_and_no_other_application() -> None:
    """They share nothing but a secret, and made their certificates apart; the next driver has another."""
    one, two = InsideTls(SEED), InsideTls(SEED)
    client = handshake(one.server_context, two.client_context, INSIDE_NAME)
    shown = client.getpeercert(binary_form=True)
    assert client.version() == "TLSv1.3" and shown is not None
    stranger = InsideTls(ApplicationSecret.new().tls_seed)
    assert two.is_insiders(shown) and not stranger.is_insiders(shown)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(stranger.server_context, two.client_context, INSIDE_NAME)
    with pytest.raises(ssl.SSLError):
        handshake(one.server_context, stranger.client_context, INSIDE_NAME)


def test_listener_of_users_shows_the_insides_certificate_to_insiders_alone() -> None:
    """One port for both: users see the certificate they know, whatever brokers trust."""
    authority = Authority()
    server = authority.certify()
    context = context_of_server(
        KeyMaterial(server.key_pem.encode(), (server.certificate,)),
        [authority.certificate],
        ssl.CERT_REQUIRED,
    )
    inside = InsideTls(SEED)
    inside.shown_by(context)
    assert handshake(context, InsideTls(SEED).client_context, INSIDE_NAME).version() == "TLSv1.3"
    user = ssl.create_default_context(cadata=authority.pem)
    user.maximum_version = ssl.TLSVersion.TLSv1_2  # 1.3 tells only later that no certificate was shown
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        handshake(context, user)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, user, INSIDE_NAME)
    assert not inside.is_insiders(server.certificate.public_bytes(Encoding.DER))
    assert not inside.is_insiders(b"nonsense")


def test_listener_of_the_inside_alone_speaks_the_newest_protocol_and_one_of_users_what_they_allow() -> None:
    """A policy of 1.3 only is not to have a port beside it; nor may one of 1.2 only keep brokers out."""
    inside = InsideTls(SEED)
    older = InsideTls(SEED).client_context
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(inside.server_context, older, INSIDE_NAME)
    authority = Authority()
    server = authority.certify()
    material = KeyMaterial(server.key_pem.encode(), (server.certificate,))
    context = context_of_server(material, [authority.certificate], ssl.CERT_NONE)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    inside.shown_by(context)
    assert handshake(context, InsideTls(SEED).client_context, INSIDE_NAME).version() == "TLSv1.2"


def test_certificate_of_a_version_that_there_is_not_is_no_insiders() -> None:
    """Whatever a stranger shows, he is a stranger; it must not be an error that nobody expects."""
    damaged = Authority().certify().damaged(bytes.fromhex("a003020102"), bytes.fromhex("a003020125"))
    assert not InsideTls(SEED).is_insiders(ssl.PEM_cert_to_DER_cert(damaged))
