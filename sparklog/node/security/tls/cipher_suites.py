"""Cipher suites: Kafka's configurations have Java's names, which are the IANA's; OpenSSL has its own.

The suites of TLS 1.3 have the same names in both, but Python can't choose among them: either all are allowed,
or TLS 1.3 is disabled.
"""

import re
from collections.abc import Sequence
from typing import Final

from sparklog.node.security.tls.errors import TlsConfigError

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
