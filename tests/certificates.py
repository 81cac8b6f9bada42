"""A certificate authority for tests, and what it signs: made when asked for, on no disk unless written."""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Certified(NamedTuple):
    """A key and the certificate of it, with whoever signed that."""

    key: PrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def encrypted_key_pem(self, password: str) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        ).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def damaged(self, old: bytes, new: bytes) -> str:
        """Return the certificate as PEM with other bytes in it, which its signature does not fit any more."""
        content = self.certificate.public_bytes(serialization.Encoding.DER)
        assert content.count(old) == 1 and len(old) == len(new)
        return ssl.DER_cert_to_PEM_cert(content.replace(old, new))

    @property
    def issuer_pem(self) -> str:
        return self.issuer.public_bytes(serialization.Encoding.PEM).decode()

    def pkcs12(self, password: str) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"kafka",
            self.key,
            self.certificate,
            [self.issuer],
            serialization.BestAvailableEncryption(password.encode()),
        )


class Authority:
    """Signs whatever it is asked to."""

    def __init__(self, name: str = "an authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def certify(
        self,
        subject: str | x509.Name = "localhost",
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
        *,
        is_rsa: bool = False,
        expired: bool = False,
    ) -> Certified:
        """Return a key and its certificate, for a common name or a whole one."""
        if isinstance(subject, str):
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        key: PrivateKey = (
            rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        )
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 5 * DAY)
            .not_valid_after(now - DAY if expired else now + DAY)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Certified(key, builder.sign(self._key, hashes.SHA256()), self.certificate)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def server_keys(certified: Certified, directory: Path, name: str = "server") -> dict[str, str]:
    """Return Kafka's keys for a key store of PEM in a file of the directory."""
    path = directory / f"{name}.pem"
    path.write_text(certified.key_pem + certified.certificate_pem)
    return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
