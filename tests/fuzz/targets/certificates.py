"""Certificates that clients show, whose names become principals; key stores and trust stores.

The first byte: a certificate as DER, PEM for a key store or a trust store, PKCS12 for either.
"""

import atexit
import tempfile
from pathlib import Path

from sparklog.node.security.tls.cluster_certificates import ClusterCertificates
from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.principal import NoMatchingRuleError, PrincipalMapper, distinguished_name
from sparklog.node.security.tls.settings import StoreSettings
from sparklog.node.security.tls.stores import read_key_store, read_trust_store
from tests.fuzz.finding import expect
from tests.fuzz.pieces import kind_of, text_of
from tests.fuzz.targets import Target

PASSWORD = "secret of the store"
_RULES = "RULE:^CN=(.*?),OU=(.*)$/$1@$2/L,RULE:^.*?C=([A-Z]*).*$/$1/U,DEFAULT"


def target() -> Target:
    from cryptography import x509

    mapper, certificates = PrincipalMapper(_RULES), ClusterCertificates(bytes(32))
    certificates.has_issued(b"")
    path = Path(tempfile.mkstemp(prefix="fuzz", suffix=".p12")[1])
    atexit.register(path.unlink, missing_ok=True)

    def take(data: bytes) -> None:
        kind, rest = kind_of(data, 5)
        if kind == 0:
            expect(not certificates.has_issued(rest), "a stranger's certificate is one of the inside")
            try:
                certificate = x509.load_der_x509_certificate(rest)
                expect(
                    mapper.name(distinguished_name(certificate)) == mapper.principal(rest).name,
                    "two names of one",
                )
            except (ValueError, x509.InvalidVersion, NoMatchingRuleError):
                pass  # what the handshake refuses: the parser's own, and that no rule is for it
            return
        if kind < 3:
            text = text_of(rest)
            store = StoreSettings(type="PEM", key=text if kind == 1 else None, certificates=text)
        else:
            path.write_bytes(rest)
            store = StoreSettings(type="PKCS12", location=str(path), password=PASSWORD)
        try:
            (read_key_store if kind in (1, 3) else read_trust_store)(store)
        except TlsConfigError as error:
            expect(PASSWORD not in str(error), "an error shows the password")

    return take
