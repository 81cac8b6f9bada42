"""TLS between driver and brokers of one application, with certificates that they generate.

All of them derive the same authority from the application's secret, so no certificate is distributed; each
generates a certificate signed by it. The authority lives as long as the application. A client of the cluster
sends the server name `CLUSTER_SERVER_NAME`, which no host has, and so gets the internal certificate on every
TLS listener, independent of the certificate of other clients; it does not depend on hosts or on users'
certificates.

The application's own sessions trust this authority too. If a listener requires certificates, the driver
generates one for them, which cannot pass for a broker's: it does not have the name.

TLS keeps out eavesdroppers and men in the middle. It does not authenticate brokers; the SCRAM exchange
that follows does.
"""

import datetime
import ssl
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final

from sparklog.node.security.tls.contexts import context_of_client, context_of_server
from sparklog.node.security.tls.stores import KeyMaterial

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

CLUSTER_SERVER_NAME: Final = "inside.sparklog"
_SESSION_NAME: Final = "session.sparklog"
_VALID: Final = datetime.timedelta(days=3650)
_CLOCKS_DIFFER: Final = datetime.timedelta(days=1)


class ClusterCertificates:
    """The internal certificate of one process, and the authority it trusts. Created on first use."""

    def __init__(self, seed: bytes) -> None:
        """`seed` is a secret of the application, of at least 32 bytes, that is used for nothing else."""
        self._seed = seed

    def shown_by(self, context: ssl.SSLContext) -> None:
        """Present the internal certificate on a listener's context to clients that request
        `CLUSTER_SERVER_NAME`."""

        def choose(tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
            if name == CLUSTER_SERVER_NAME:
                tls.context = self.server_context

        context.sni_callback = choose

    def has_issued(self, certificate_der: bytes) -> bool:
        """Whether a certificate was signed by this application's authority."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

        try:
            x509.load_der_x509_certificate(certificate_der).verify_directly_issued_by(self._authority)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion):
            return False
        return True

    @property
    def authority_pem(self) -> str:
        """The authority's certificate, for sessions that trust it; not a secret."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._authority.public_bytes(Encoding.PEM).decode()

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        """For listeners without another certificate. A client's certificate is optional, and verified."""
        return self._server_context(ssl.CERT_OPTIONAL)

    @cached_property
    def strict_server_context(self) -> ssl.SSLContext:
        """For listeners that require a certificate of this application."""
        return self._server_context(ssl.CERT_REQUIRED)

    def _server_context(self, verify_mode: ssl.VerifyMode) -> ssl.SSLContext:
        context = context_of_server(self._own, [self._authority], verify_mode)
        # All who come are of this project. A listener that shows other certificates, too, keeps its own
        # protocols: OpenSSL takes them from the context that a connection began with.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """For connections to `CLUSTER_SERVER_NAME`."""
        return context_of_client(self._own, [self._authority])

    @cached_property
    def _authority_key(self) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        # 64 bits more than the curve's order has, so that the remainder is as good as any number.
        derived = HKDF(hashes.SHA256(), 40, salt=None, info=b"sparklog inside tls").derive(self._seed)
        return ec.derive_private_key(int.from_bytes(derived) % (_ORDER - 1) + 1, ec.SECP256R1())

    @cached_property
    def _authority(self) -> "x509.Certificate":
        from cryptography import x509

        key = self._authority_key
        return _signed(_named("sparklog application"), key.public_key(), key, x509.BasicConstraints(True, 0))

    def session_pem(self) -> tuple[str, str]:
        """Return a private key, which is secret, and a certificate for sessions, as PEM."""
        from cryptography.hazmat.primitives.serialization import Encoding

        material = self._certified(_SESSION_NAME)
        (certificate,) = material.certificates
        return material.key_pem.decode(), certificate.public_bytes(Encoding.PEM).decode()

    @cached_property
    def _own(self) -> KeyMaterial:
        return self._certified(CLUSTER_SERVER_NAME)

    def _certified(self, name: str) -> KeyMaterial:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        certificate = _signed(_named(name), key.public_key(), self._authority_key, names)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return KeyMaterial(pem, (certificate,))


@cache
def cluster_certificates(seed: bytes) -> ClusterCertificates:
    """Return this process's certificates for a seed, always the same object."""
    return ClusterCertificates(seed)


_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Order of the curve P-256 (FIPS 186-4, D.1.2.3)."""


def _named(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _signed(
    subject: "x509.Name",
    public_key: "EllipticCurvePublicKey",
    authority: "EllipticCurvePrivateKey",
    extension: "x509.ExtensionType",
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now = datetime.datetime.now(datetime.UTC)
    authority_public_key = authority.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(_named("sparklog application"))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_public_key), critical=False
        )
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    )
    return builder.sign(authority, hashes.SHA256())
