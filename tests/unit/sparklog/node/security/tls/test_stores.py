"""Key stores and trust stores: what is read, and that whatever is wrong is said by the name of its key."""

import ssl
from pathlib import Path

import pytest

from sparklog.node.security.tls.contexts import client_context, server_context
from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.settings import StoreSettings, TlsSettings
from tests.certificates import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.certify(is_rsa=True)
OTHER = AUTHORITY.certify()
P_256 = bytes.fromhex("06082a8648ce3d030107")
UNKNOWN_CURVE = OTHER.damaged(P_256, bytes.fromhex("06082a8448ce3d030107"))
NO_POINT = OTHER.damaged(P_256 + bytes.fromhex("03420004"), P_256 + bytes.fromhex("03420005"))
UNKNOWN_VERSION = OTHER.damaged(bytes.fromhex("a003020102"), bytes.fromhex("a00302016a"))
KEY_OF_AN_UNKNOWN_CURVE = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqBHM9VAYItBG0wawIBAQQgCzaDKujaK3N4WFp+
r+B9Me40UO7ggGeJAlxSZIhl4WyhRANCAASDYTU7FbLeoDG7rbG7yH7GNt6uKYeX
99DnQo3GKdZkofCPcOOujUlO3ITuM9/WResmWgwIrBtEHIZDb6GYBgHG
-----END PRIVATE KEY-----
"""


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """Return the client's side of a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(4):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return sides[0]


def key_store(kind: str, directory: Path) -> StoreSettings:
    """Return the server's key, as it may be given."""
    path = directory / "store"
    match kind:
        case "PEM":
            return StoreSettings(type="PEM", key=SERVER.key_pem, certificates=SERVER.certificate_pem)
        case "encrypted PEM":
            return StoreSettings(
                type="PEM",
                key=SERVER.encrypted_key_pem("secret"),
                certificates=SERVER.issuer_pem + SERVER.certificate_pem,
                key_password="secret",
            )
        case "PEM file":
            path.write_text("as an operator pastes it\n" + SERVER.key_pem + SERVER.certificate_pem)
            return StoreSettings(type="PEM", location=str(path))
        case _:
            path.write_bytes(SERVER.pkcs12("secret"))
            return StoreSettings(type=kind, location=str(path), password="secret")


@pytest.mark.parametrize("kind", ["PEM", "encrypted PEM", "PEM file", "PKCS12", "JKS"])
def test_key_of_each_form_is_shown_with_its_chain(kind: str, tmp_path: Path) -> None:
    """PKCS12 is read under Kafka's default type, too, as Java does."""
    server = server_context(TlsSettings(keystore=key_store(kind, tmp_path)))
    trusting = StoreSettings(type="PEM", certificates=AUTHORITY.pem)
    client = handshake(server, client_context(TlsSettings(truststore=trusting)))
    assert client.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client_context(TlsSettings(truststore=trusting)), "elsewhere")
    unchecked = TlsSettings(truststore=trusting, endpoint_identification_algorithm="")
    assert handshake(server, client_context(unchecked), "elsewhere").version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(TlsSettings()))


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_trust_store_of_each_form_is_trusted(kind: str, tmp_path: Path) -> None:
    """Whoever is in it is trusted, be it an authority or the server itself, as in Java."""
    path = tmp_path / "trust"
    if kind == "PEM":
        path.write_text(OTHER.certificate_pem + SERVER.certificate_pem)
        trusting = StoreSettings(type="PEM", location=str(path))
    else:
        path.write_bytes(OTHER.pkcs12("secret"))
        trusting = StoreSettings(type="PKCS12", location=str(path), password="secret")
    server = server_context(TlsSettings(keystore=key_store("PEM", tmp_path)))
    assert handshake(server, client_context(TlsSettings(truststore=trusting))).version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "ssl.keystore.location: a listener of SSL or SASL_SSL needs a private key"),
        ({"password": "x"}, "ssl.keystore.password: there is no ssl.keystore.location"),
        ({"key": SERVER.key_pem}, "ssl.keystore.key: only with ssl.keystore.type=PEM, which is JKS"),
        ({"type": "PEM", "key": SERVER.key_pem}, "are given together"),
        ({"type": "PEM", "certificates": SERVER.certificate_pem}, "are given together"),
        (
            {"type": "PEM", "key": SERVER.key_pem, "certificates": SERVER.certificate_pem, "location": "/a"},
            "ssl.keystore.location: ssl.keystore.key is given, too",
        ),
        (
            {"type": "PEM", "key": SERVER.key_pem, "certificates": SERVER.certificate_pem, "password": "x"},
            "ssl.keystore.password: PEM has no password; the password of a key is ssl.key.password",
        ),
        (
            {"type": "PEM", "key": SERVER.key_pem, "certificates": OTHER.certificate_pem},
            "ssl.keystore.certificate.chain: none of the certificates is that of the private key",
        ),
        (
            {"type": "PEM", "key": SERVER.encrypted_key_pem("a"), "certificates": SERVER.certificate_pem},
            "ssl.key.password: the private key of ssl.keystore.key is encrypted: give its password",
        ),
        (
            {
                "type": "PEM",
                "key": SERVER.encrypted_key_pem("a"),
                "certificates": SERVER.certificate_pem,
                "key_password": "b",
            },
            "ssl.keystore.key: the private key cannot be read with ssl.key.password",
        ),
        (
            {"type": "PEM", "key": KEY_OF_AN_UNKNOWN_CURVE, "certificates": SERVER.certificate_pem},
            "ssl.keystore.key: it cannot be read: Curve 1.2.156.10197.1.301 is not supported",
        ),
        (
            {"type": "PEM", "key": SERVER.key_pem, "certificates": UNKNOWN_CURVE},
            "certificate.chain: the public key of a certificate cannot be read: Curve .* is not supported",
        ),
        (
            {"type": "PEM", "key": SERVER.key_pem, "certificates": NO_POINT},
            "certificate.chain: the public key of a certificate cannot be read: Invalid key",
        ),
        (
            {"type": "PEM", "key": SERVER.key_pem, "certificates": UNKNOWN_VERSION},
            "certificate.chain: certificate 1 cannot be read: 106 is not a valid X509 version",
        ),
        ({"type": "PEM", "key": "nonsense", "certificates": SERVER.certificate_pem}, "found 0"),
        ({"type": "PEM", "key": SERVER.key_pem, "certificates": "nonsense"}, "there is no certificate"),
        ({"location": "/nowhere/a.p12", "password": "x"}, "/nowhere/a.p12 cannot be read: No such file"),
    ],
)
def test_key_store_that_is_of_no_use_is_refused_by_the_name_of_its_key(
    keys: dict[str, str], said: str
) -> None:
    """It is said before anything listens, since a client would see no more than a closed connection."""
    with pytest.raises(TlsConfigError, match=said) as caught:
        server_context(TlsSettings(keystore=StoreSettings(**keys)))
    assert "PRIVATE KEY" not in str(caught.value).replace("-----BEGIN PRIVATE KEY-----", "")


def test_files_of_the_wrong_kind_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    """The type is a word in a file; what is in the store is a fact."""
    path = tmp_path / "store"
    path.write_text(SERVER.key_pem + SERVER.certificate_pem)
    with pytest.raises(TlsConfigError, match=r"is PEM, and ssl\.keystore\.type is JKS: set it to PEM"):
        server_context(TlsSettings(keystore=StoreSettings(location=str(path), password="x")))
    path.write_bytes(SERVER.pkcs12("right"))
    with pytest.raises(TlsConfigError, match=r"cannot be read as PKCS12 with ssl.keystore.password"):
        server_context(TlsSettings(keystore=StoreSettings(location=str(path), password="wrong")))
    with pytest.raises(TlsConfigError, match=r"ssl\.keystore\.password: .* needs one"):
        server_context(TlsSettings(keystore=StoreSettings(location=str(path))))
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(TlsConfigError, match="keytool -importkeystore -srckeystore"):
        server_context(TlsSettings(keystore=StoreSettings(location=str(path), password="x")))


@pytest.mark.parametrize(
    ("suites", "protocols", "version", "cipher"),
    [
        ((), ("TLSv1.2",), "TLSv1.2", None),
        (
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
            ("TLSv1.2", "TLSv1.3"),
            "TLSv1.2",
            "ECDHE-RSA-AES128-GCM-SHA256",
        ),
        (
            (
                "ECDHE-RSA-CHACHA20-POLY1305",
                "TLS_AES_256_GCM_SHA384",
                "TLS_AES_128_GCM_SHA256",
                "TLS_CHACHA20_POLY1305_SHA256",
            ),
            ("TLSv1.2", "TLSv1.3"),
            "TLSv1.3",
            None,
        ),
    ],
)
def test_cipher_suites_and_protocols_are_those_that_are_named(
    suites: tuple[str, ...], protocols: tuple[str, ...], version: str, cipher: str | None
) -> None:
    """Java's names are in every configuration for Kafka."""
    key = StoreSettings(type="PEM", key=SERVER.key_pem, certificates=SERVER.certificate_pem)
    server = server_context(TlsSettings(keystore=key, cipher_suites=suites, enabled_protocols=protocols))
    client = handshake(server, ssl.create_default_context(cadata=AUTHORITY.pem))
    used = client.cipher()
    assert client.version() == version
    assert used is not None and cipher in (None, used[0])


@pytest.mark.parametrize(
    ("suites", "said"),
    [
        (("TLS_KRB5_WITH_RC4_128_MD5",), "ssl.cipher.suites: TLS_KRB5_WITH_RC4_128_MD5 is unknown"),
        (("TLS_AES_256_GCM_SHA384",), "name all three"),
        (("NONSENSE",), "OpenSSL knows none of NONSENSE"),
        (("ECDHE-RSA-AES128-GCM-SHA256", "NONSENSE", "!aNULL"), "OpenSSL knows none of NONSENSE"),
    ],
)
def test_cipher_suites_that_cannot_be_had_are_refused(suites: tuple[str, ...], said: str) -> None:
    """A weaker suite than somebody asked for must not come instead."""
    key = StoreSettings(type="PEM", key=SERVER.key_pem, certificates=SERVER.certificate_pem)
    with pytest.raises(TlsConfigError, match=said):
        server_context(TlsSettings(keystore=key, cipher_suites=suites))


def test_client_trusts_whom_its_renewed_file_names_and_reads_it_once(tmp_path: Path) -> None:
    """Workers of Spark's live for days, longer than some certificates; each connection asks for it."""
    path, other = tmp_path / "ca.pem", Authority("another authority")
    server = server_context(TlsSettings(keystore=key_store("PEM", tmp_path)))
    path.write_text(other.pem)
    settings = TlsSettings(truststore=StoreSettings(type="PEM", location=str(path)))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client_context(settings))
    assert client_context(settings) is client_context(settings)
    renewed = tmp_path / "renewed.pem"
    renewed.write_text(AUTHORITY.pem)
    renewed.replace(path)
    assert handshake(server, client_context(settings)).version() == "TLSv1.3"


def test_settings_show_no_secret() -> None:
    """They end up in logs with whatever holds them."""
    store = StoreSettings(
        type="PEM", key=SERVER.key_pem, certificates="c", password="p4ss", key_password="k3y"
    )
    shown = repr(TlsSettings(keystore=store))
    assert "p4ss" not in shown and "k3y" not in shown and "PRIVATE" not in shown
