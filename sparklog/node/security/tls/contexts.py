"""Contexts of Python's `ssl`, from Kafka's `ssl.` keys.

Creating one reads files and checks keys, which blocks; it happens before any socket listens or connects, so
that an error names the wrong key. A context serves any number of connections; a renewed certificate is
another context, and open connections keep the old one.

Private keys are never written to disk on the way: Python's `ssl` loads them from a file only, which is one in
memory.

Source: Kafka's DefaultSslEngineFactory, SslFactory.
"""

import contextlib
import os
import re
import ssl
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.settings import TlsSettings
from sparklog.node.security.tls.stores import KeyMaterial, file_version, read_key_store, read_trust_store

if TYPE_CHECKING:
    from cryptography import x509

TLS_1_3_SUITES: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
_JAVA: Final = re.compile(
    r"TLS_(?P<exchange>RSA|ECDHE_RSA|ECDHE_ECDSA|DHE_RSA)_WITH_"
    r"(?:AES_(?P<bits>128|256)_(?P<mode>GCM|CBC)_(?P<mac>SHA256|SHA384|SHA)|(?P<chacha>CHACHA20_POLY1305)_SHA256)"
)


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite before TLS 1.3; other names than Java's are taken for OpenSSL's.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    'ECDHE-RSA-AES256-GCM-SHA384'
    >>> openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA")
    'AES128-SHA'

    Raises:
        TlsConfigError: OpenSSL has no such suite.
    """
    if not suite.startswith(("TLS_", "SSL_")):
        return suite
    found = _JAVA.fullmatch(suite)
    if found is None:
        raise TlsConfigError("ssl.cipher.suites", f"{suite} is unknown; use OpenSSL's name")
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    if found["chacha"]:
        return f"{exchange}CHACHA20-POLY1305"
    mode = "-GCM" if found["mode"] == "GCM" else ""
    return f"{exchange}AES{found['bits']}{mode}-{found['mac']}"


def allows_tls_1_3(suites: Sequence[str]) -> bool:
    """Return whether the suites allow TLS 1.3; an empty list allows all.

    Python can't choose among the suites of TLS 1.3: either all are allowed, or TLS 1.3 is disabled.

    Raises:
        TlsConfigError: they name some of TLS 1.3's and not the others.
    """
    named = TLS_1_3_SUITES.intersection(suites)
    if named and named != TLS_1_3_SUITES:
        raise TlsConfigError(
            "ssl.cipher.suites",
            "Python can't choose among the suites of TLS 1.3: name all three "
            f"({', '.join(sorted(TLS_1_3_SUITES))}), or none of them, which means TLS 1.2",
        )
    return bool(named) or not suites


_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OPERATORS: Final = ("!", "-", "+", "@")
"""The first characters of items of OpenSSL's lists that add no suite."""
_MAX_CLIENT_CONTEXTS: Final = 8
_VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a listener. Blocks.

    Raises:
        TlsConfigError: there is no certificate, or a store is unusable.
    """
    prefix = settings.prefix
    material = read_key_store(settings.keystore, prefix)
    if material is None:
        raise TlsConfigError(
            f"{prefix}keystore.location",
            "a listener of SSL or SASL_SSL needs a private key and a certificate: set it, or "
            f"{prefix}keystore.key and {prefix}keystore.certificate.chain with {prefix}keystore.type=PEM",
        )
    trusted = None if settings.client_auth == "none" else read_trust_store(settings.truststore, prefix)
    context = context_of_server(material, trusted, _VERIFY_MODES[settings.client_auth], prefix)
    _restrict(context, settings)
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client, cached by its settings and the versions of their files. Blocks.

    Spark's Python workers outlive jobs, and so pick up renewed certificates.

    Raises:
        TlsConfigError: a store is unusable.
    """
    return _client_context(settings, file_version(settings.keystore), file_version(settings.truststore))


@lru_cache(_MAX_CLIENT_CONTEXTS)
def _client_context(settings: TlsSettings, *versions: tuple[int, int, int] | None) -> ssl.SSLContext:
    prefix = settings.prefix
    context = context_of_client(
        read_key_store(settings.keystore, prefix), read_trust_store(settings.truststore, prefix), prefix
    )
    context.check_hostname = settings.endpoint_identification_algorithm.lower() == "https"
    _restrict(context, settings)
    return context


def context_of_server(
    material: KeyMaterial,
    trusted: "Sequence[x509.Certificate] | None",
    verify_mode: ssl.VerifyMode,
    prefix: str = "ssl.",
) -> ssl.SSLContext:
    """Return a server's context; `trusted` None trusts the system's authorities.

    Raises:
        TlsConfigError: OpenSSL refuses the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.verify_mode = verify_mode
    if verify_mode is not ssl.CERT_NONE:
        _trust(context, trusted, ssl.Purpose.CLIENT_AUTH)
    _load_key(context, material, prefix)
    return context


def context_of_client(
    material: KeyMaterial | None, trusted: "Sequence[x509.Certificate] | None", prefix: str = "ssl."
) -> ssl.SSLContext:
    """Return a client's context with trusted servers; None trusts the system's authorities.

    Raises:
        TlsConfigError: OpenSSL refuses the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust(context, trusted, ssl.Purpose.SERVER_AUTH)
    if material is not None:
        _load_key(context, material, prefix)
    return context


def _trust(
    context: ssl.SSLContext, trusted: "Sequence[x509.Certificate] | None", purpose: ssl.Purpose
) -> None:
    # As in Java: every certificate of the trust store is trusted, also one with another issuer; without a
    # store the system's authorities are.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trusted is None:
        context.load_default_certs(purpose)
    else:
        context.load_verify_locations(cadata=b"".join(_der(each) for each in trusted))


def _restrict(context: ssl.SSLContext, settings: TlsSettings) -> None:
    prefix = settings.prefix
    unknown = set(settings.enabled_protocols) - set(_VERSIONS)
    if unknown or not settings.enabled_protocols:
        raise TlsConfigError(
            f"{prefix}enabled.protocols",
            f"{', '.join(sorted(unknown)) or 'none'}; TLSv1.2 and TLSv1.3 are known",
        )
    versions = {_VERSIONS[name] for name in settings.enabled_protocols}
    if settings.cipher_suites:
        key = f"{prefix}cipher.suites"
        older = [openssl_name(each) for each in settings.cipher_suites if each not in TLS_1_3_SUITES]
        if not allows_tls_1_3(settings.cipher_suites):
            versions.discard(ssl.TLSVersion.TLSv1_3)
        if not older:
            versions.discard(ssl.TLSVersion.TLSv1_2)
        if not versions:
            raise TlsConfigError(key, "none of them is of the enabled protocols")
        # In a list OpenSSL ignores unknown suites; so each is tried alone, before all of them.
        alone = [each for each in older if not each.startswith(_OPERATORS)]
        for suites in (*alone, ":".join(older)) if older else ():
            try:
                context.set_ciphers(suites)
            except ssl.SSLError as error:
                raise TlsConfigError(key, f"OpenSSL knows none of {suites.replace(':', ', ')}") from error
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def _load_key(context: ssl.SSLContext, material: KeyMaterial, prefix: str) -> None:
    pem = [_pem(each) for each in material.certificates]
    with _in_memory(b"".join((material.key_pem, *pem))) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise TlsConfigError(
                f"{prefix}keystore.location", f"OpenSSL refuses the certificate: {reason}"
            ) from None


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory with this content."""
    descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _pem(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _der(certificate: "x509.Certificate") -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.DER)
