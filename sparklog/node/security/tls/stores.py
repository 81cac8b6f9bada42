"""Key stores and trust stores, PEM (inline or in files) or PKCS12; their content as PEM.

JKS is a format of Java's alone. Such a store is refused with the command that converts it. Under the type
JKS, Kafka's default, PKCS12 is read as well, as in Java.

Source: Kafka's DefaultSslEngineFactory.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.settings import StoreSettings

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN (?P<kind>(?:[A-Z]+ )*PRIVATE KEY)-----.+?-----END (?P=kind)-----", re.DOTALL
)


class KeyMaterial(NamedTuple):
    """A private key and its certificate chain, the key's own certificate first."""

    key_pem: bytes
    certificates: "tuple[x509.Certificate, ...]"

    def __repr__(self) -> str:
        return f"KeyMaterial({self.certificates[0].subject.rfc4514_string()})"


def read_key_store(store: StoreSettings, prefix: str = "ssl.") -> KeyMaterial | None:
    """Return the content of `ssl.keystore...`; None if there is none. Blocks.

    Raises:
        TlsConfigError: the settings contradict each other, or the file is unusable. It names the key, which
            begins with `prefix`.
    """
    location, key = f"{prefix}keystore.location", f"{prefix}keystore.key"
    chain = f"{prefix}keystore.certificate.chain"
    if store.key is not None or store.certificates is not None:
        if store.type.upper() != "PEM":
            raise TlsConfigError(key, f"only with {prefix}keystore.type=PEM, which is {store.type}")
        if store.key is None or store.certificates is None:
            raise TlsConfigError(key, f"{key} and {chain} are given together")
        if store.location is not None:
            raise TlsConfigError(location, f"{key} is given, too; give one of them")
        _refuse_password(store, f"{prefix}keystore.password", f"{prefix}key.password")
        return _from_pem(store.key, store.certificates, store.key_password, key, chain, prefix)
    if store.location is None:
        if store.password is not None:
            raise TlsConfigError(f"{prefix}keystore.password", f"there is no {location}")
        return None
    content = _read(location, store.location)
    if _is_pem(store, content, location, f"{prefix}keystore.type"):
        _refuse_password(store, f"{prefix}keystore.password", f"{prefix}key.password")
        text = content.decode("utf-8", "replace")
        return _from_pem(text, text, store.key_password, location, location, prefix)
    return _from_pkcs12(content, store, location, f"{prefix}keystore.password")


def read_trust_store(store: StoreSettings, prefix: str = "ssl.") -> "tuple[x509.Certificate, ...] | None":
    """Return the certificates of `ssl.truststore...`; None if there is none. Blocks.

    Raises:
        TlsConfigError: as `read_key_store`.
    """
    location, certificates = f"{prefix}truststore.location", f"{prefix}truststore.certificates"
    password = f"{prefix}truststore.password"
    if store.certificates is not None:
        if store.type.upper() != "PEM":
            raise TlsConfigError(
                certificates, f"only with {prefix}truststore.type=PEM, which is {store.type}"
            )
        if store.location is not None:
            raise TlsConfigError(location, f"{certificates} is given, too; give one of them")
        _refuse_password(store, password, None)
        return _certificates(store.certificates, certificates)
    if store.location is None:
        if store.password is not None:
            raise TlsConfigError(password, f"there is no {location}")
        return None
    content = _read(location, store.location)
    if _is_pem(store, content, location, f"{prefix}truststore.type"):
        _refuse_password(store, password, None)
        return _certificates(content.decode("utf-8", "replace"), location)
    found = _load_pkcs12(content, store.password, location, store.location, password)
    trusted = [each.certificate for each in (found.cert, *found.additional_certs) if each is not None]
    if not trusted:
        raise TlsConfigError(location, f"{store.location} has no certificates")
    return tuple(trusted)


def file_version(store: StoreSettings) -> tuple[int, int, int] | None:
    """Return values that change whenever a store's file is replaced; None without a file. Blocks."""
    if store.location is None:
        return None
    try:
        status = Path(store.location).stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def _read(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsConfigError(key, f"{path} cannot be read: {error.strerror or error}") from error


def _refuse_password(store: StoreSettings, key: str, instead: str | None) -> None:
    if store.password is not None:
        remedy = "" if instead is None else f"; the password of a key is {instead}"
        raise TlsConfigError(key, f"PEM has no password{remedy}")


def _is_pem(store: StoreSettings, content: bytes, key: str, type_key: str) -> bool:
    """Return whether the file is PEM, else PKCS12, by its configured type and its content."""
    kind, looks_like_pem = store.type.upper(), b"-----BEGIN " in content
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise TlsConfigError(type_key, f"{store.type} is unknown; PEM and PKCS12 are supported")
    if kind == "PEM":
        return True
    if content.startswith(_JKS_MAGIC):
        raise TlsConfigError(
            key,
            f"{store.location} is a JKS store, which only Java reads. Convert it, and set {type_key}=PKCS12: "
            f"keytool -importkeystore -srckeystore {store.location} -destkeystore {store.location}.p12 "
            "-deststoretype PKCS12",
        )
    if looks_like_pem:
        raise TlsConfigError(
            type_key, f"{store.location} is PEM, and {type_key} is {store.type}: set it to PEM"
        )
    return False


def _certificates(text: str, key: str) -> "tuple[x509.Certificate, ...]":
    from cryptography import x509

    found = []
    for match in _CERTIFICATE.finditer(text.replace("\\n", "\n")):
        try:
            found.append(x509.load_pem_x509_certificate(match[0].encode()))
        except (ValueError, x509.InvalidVersion) as error:
            raise TlsConfigError(key, f"certificate {len(found) + 1} cannot be read: {error}") from error
    if not found:
        raise TlsConfigError(key, "there is no certificate (-----BEGIN CERTIFICATE-----) in it")
    return tuple(found)


def _from_pem(
    key_text: str, chain_text: str, password: str | None, key: str, chain: str, prefix: str
) -> KeyMaterial:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    keys = [match[0] for match in _PRIVATE_KEY.finditer(key_text)]
    if len(keys) != 1:
        raise TlsConfigError(
            key, f"expected one private key (-----BEGIN PRIVATE KEY-----), found {len(keys)}"
        )
    is_encrypted = "ENCRYPTED" in keys[0]
    if is_encrypted and password is None:
        raise TlsConfigError(
            f"{prefix}key.password", f"the private key of {key} is encrypted: give its password"
        )
    secret = password.encode() if is_encrypted and password is not None else None
    try:
        private_key: Any = serialization.load_pem_private_key(keys[0].encode(), secret)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        reason = (
            f"the private key cannot be read with {prefix}key.password" if secret else "it cannot be read"
        )
        raise TlsConfigError(key, f"{reason}: {_one_line(error)}") from None
    return _matching(private_key, _certificates(chain_text, chain), chain)


def _from_pkcs12(content: bytes, store: StoreSettings, location: str, password: str) -> KeyMaterial:
    assert store.location is not None
    if store.password is None:
        raise TlsConfigError(password, f"{store.location} needs one")
    found = _load_pkcs12(content, store.password, location, store.location, password)
    if found.key is None or found.cert is None:
        raise TlsConfigError(location, f"{store.location} has no private key with a certificate")
    others = [each.certificate for each in found.additional_certs]
    return _matching(found.key, (found.cert.certificate, *others), location)


def _load_pkcs12(
    content: bytes, password: str | None, key: str, path: str, password_key: str
) -> "PKCS12KeyAndCertificates":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsConfigError(
            key, f"{path} cannot be read as PKCS12 with {password_key}: {_one_line(error)}"
        ) from None


def _matching(private_key: Any, certificates: "tuple[x509.Certificate, ...]", key: str) -> KeyMaterial:
    """Return the key with its chain, in order; the certificates may come in any order."""
    from cryptography.hazmat.primitives import serialization

    encoding, spki = serialization.Encoding, serialization.PublicFormat.SubjectPublicKeyInfo
    own = private_key.public_key().public_bytes(encoding.DER, spki)
    leaf = next((each for each in certificates if _public_key(each, key) == own), None)
    if leaf is None:
        raise TlsConfigError(key, "none of the certificates is that of the private key")
    chain, left = [leaf], [each for each in certificates if each is not leaf]
    while (
        issuer := next((each for each in left if each.subject == chain[-1].issuer), None)
    ) is not None and chain[-1].issuer != chain[-1].subject:
        left.remove(issuer)
        chain.append(issuer)
    key_pem = private_key.private_bytes(
        encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyMaterial(key_pem, tuple(chain))


def _public_key(certificate: "x509.Certificate", key: str) -> bytes:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    try:
        return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise TlsConfigError(
            key, f"the public key of a certificate cannot be read: {_one_line(error)}"
        ) from error


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
