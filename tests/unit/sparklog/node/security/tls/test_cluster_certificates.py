"""Certificates that driver and brokers make themselves: good among themselves, and for nobody else."""

import ssl

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.security.tls.cluster_certificates import CLUSTER_SERVER_NAME, ClusterCertificates
from sparklog.node.security.tls.contexts import context_of_server
from sparklog.node.security.tls.stores import KeyMaterial
from tests.certificates import Authority
from tests.unit.sparklog.node.security.tls.test_stores import handshake

SEED = ApplicationSecret.new().tls_seed


def test_processes_of_one_application_trust_each_other_and_no_other_application() -> None:
    """They share nothing but a secret, and made their certificates apart; the next driver has another."""
    one, two = ClusterCertificates(SEED), ClusterCertificates(SEED)
    client = handshake(one.server_context, two.client_context, CLUSTER_SERVER_NAME)
    shown = client.getpeercert(binary_form=True)
    assert client.version() == "TLSv1.3" and shown is not None
    stranger = ClusterCertificates(ApplicationSecret.new().tls_seed)
    assert two.has_issued(shown) and not stranger.has_issued(shown)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(stranger.server_context, two.client_context, CLUSTER_SERVER_NAME)
    with pytest.raises(ssl.SSLError):
        handshake(one.server_context, stranger.client_context, CLUSTER_SERVER_NAME)


def test_listener_of_users_shows_the_insides_certificate_to_insiders_alone() -> None:
    """One port for both: users see the certificate they know, whatever brokers trust."""
    authority = Authority()
    server = authority.certify()
    context = context_of_server(
        KeyMaterial(server.key_pem.encode(), (server.certificate,)),
        [authority.certificate],
        ssl.CERT_REQUIRED,
    )
    certificates = ClusterCertificates(SEED)
    certificates.shown_by(context)
    assert (
        handshake(context, ClusterCertificates(SEED).client_context, CLUSTER_SERVER_NAME).version()
        == "TLSv1.3"
    )
    user = ssl.create_default_context(cadata=authority.pem)
    user.maximum_version = ssl.TLSVersion.TLSv1_2  # 1.3 tells only later that no certificate was shown
    with pytest.raises(ssl.SSLError, match=r"(?i)certificate"):
        handshake(context, user)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, user, CLUSTER_SERVER_NAME)
    assert not certificates.has_issued(server.certificate.public_bytes(Encoding.DER))
    assert not certificates.has_issued(b"nonsense")


def test_listener_of_the_inside_alone_speaks_the_newest_protocol_and_one_of_users_what_they_allow() -> None:
    """A policy of 1.3 only is not to have a port beside it; nor may one of 1.2 only keep brokers out."""
    certificates = ClusterCertificates(SEED)
    older = ClusterCertificates(SEED).client_context
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(certificates.server_context, older, CLUSTER_SERVER_NAME)
    authority = Authority()
    server = authority.certify()
    material = KeyMaterial(server.key_pem.encode(), (server.certificate,))
    context = context_of_server(material, [authority.certificate], ssl.CERT_NONE)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    certificates.shown_by(context)
    assert (
        handshake(context, ClusterCertificates(SEED).client_context, CLUSTER_SERVER_NAME).version()
        == "TLSv1.2"
    )


def test_certificate_of_a_version_that_there_is_not_is_no_insiders() -> None:
    """Whatever a stranger shows, he is a stranger; it must not be an error that nobody expects."""
    damaged = Authority().certify().damaged(bytes.fromhex("a003020102"), bytes.fromhex("a003020125"))
    assert not ClusterCertificates(SEED).has_issued(ssl.PEM_cert_to_DER_cert(damaged))
