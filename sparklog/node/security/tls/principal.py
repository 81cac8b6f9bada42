"""The principal of a certificate's owner: its distinguished name, mapped by `ssl.principal.mapping.rules`.

A name is written as by Java's X500Principal.getName() (RFC 2253), since ACLs and rules are written for that
form. Rules are tried in order; the first that matches the whole name determines the principal.

    DEFAULT                              the name as it is
    RULE:pattern/replacement/[LU]        the replacement, in lower or upper case

Source: Kafka's SslPrincipalMapper, DefaultKafkaPrincipalBuilder; Java's sun.security.x509.AVA.
"""

import re
from typing import TYPE_CHECKING, Final

from sparklog.node.acls.acl import Principal
from sparklog.node.security.tls.errors import TlsConfigError

if TYPE_CHECKING:
    from cryptography import x509

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_RULE: Final = re.compile(r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_KEY: Final = "ssl.principal.mapping.rules"


class NoMatchingRuleError(Exception):
    """No rule matches the name, or the name is unreadable; the client is not authenticated."""


def distinguished_name(certificate: "x509.Certificate") -> str:
    """Return the subject's name as Java writes it: the most specific part first.

    Raises:
        NoMatchingRuleError: a part of the name is unreadable.
    """
    try:
        parts = certificate.subject.rdns
    except (ValueError, TypeError) as error:
        raise NoMatchingRuleError(f"its name cannot be read: {error}") from error
    return ",".join("+".join(map(_attribute, part)) for part in reversed(parts))


def _attribute(attribute: "x509.NameAttribute[str | bytes]") -> str:
    keyword = _KEYWORDS.get(attribute.oid.dotted_string)
    tag, content = _content(attribute)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or attribute.oid.dotted_string}=#{_der(tag, content).hex()}"
    return f"{keyword}={_escaped(content.decode(errors='replace'))}"


def _content(attribute: "x509.NameAttribute[str | bytes]") -> tuple[int, bytes]:
    """Return the value's ASN.1 type, and its bytes in the certificate."""
    value = attribute.value
    tag = int(attribute._type.value)
    return tag, value if isinstance(value, bytes) else value.encode(_ENCODINGS.get(tag, "utf-8"))


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 128:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 128 | size)) + length.to_bytes(size, "big") + content


_ENCODINGS: Final = {30: "utf-16-be", 28: "utf-32-be"}
_TEXTS: Final = frozenset({12, 19, 20, 22, 27, 30})
"""The types of which Java shows the text: UTF8String, PrintableString, T61String, IA5String, GeneralString
and BMPString, whose two bytes a character it takes for UTF-8, too. The others are shown as their bytes.
"""


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    leading = len(escaped) - len(escaped.lstrip(" "))
    kept = escaped.strip(" ")
    trailing = len(escaped) - leading - len(kept) if kept else 0
    return "\\ " * leading + kept.replace("\0", "\\00") + "\\ " * trailing


class _Rule:
    """One rule: a pattern for whole names, and the replacement of a name that matches."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise TlsConfigError(_KEY, f"{pattern} is not a pattern: {error}") from None
        self._replacement = replacement
        self._case = case

    def apply(self, name: str) -> str | None:
        if self._pattern.fullmatch(name) is None:
            return None
        # As Java's replaceAll: an empty match at the end of a name is replaced, too.
        result = self._pattern.sub(self._expand, name)
        return {"L": result.lower, "U": result.upper}.get(self._case, lambda: result)()

    def _expand(self, match: "re.Match[str]") -> str:
        """Return the replacement, with groups of the match for `$1`; a number without a group is literal."""
        text, made, at = self._replacement, [], 0
        while at < len(text):
            if text[at] == "\\" and at + 1 < len(text):
                made.append(text[at + 1])
                at += 2
                continue
            digits = re.match(r"\$(\d+)", text[at:])
            if digits is None:
                made.append(text[at])
                at += 1
                continue
            used = digits[1]
            while len(used) > 1 and int(used) > self._pattern.groups:
                used = used[:-1]
            if int(used) > self._pattern.groups:
                made.append("$")
                at += 1
                continue
            made.append(match[int(used)] or "")
            at += 1 + len(used)
        return "".join(made)


class PrincipalMapper:
    def __init__(self, rules: str) -> None:
        """Parse the rules.

        Raises:
            TlsConfigError: a rule is malformed.
        """
        self._rules: list[_Rule | None] = []
        """None is DEFAULT."""
        text, at = rules.strip(), 0
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None:
                raise TlsConfigError(
                    _KEY, f"{text[at:]!r} is not a rule: DEFAULT, or RULE:pattern/replacement/[LU]"
                )
            self._rules.append(None if found[1] else _Rule(found[2], found[3], found[4]))
            separator = re.compile(r"\s*(,\s*|$)").match(text, found.end())
            if separator is None:
                raise TlsConfigError(_KEY, f"{text[found.end() :]!r} follows a rule; a comma is expected")
            at = separator.end()

    def name(self, distinguished_name: str) -> str:
        """Return the principal's name for a distinguished name.

        >>> PrincipalMapper("RULE:^CN=(.*?),.*$/$1/L,DEFAULT").name("CN=Ann,O=Shop")
        'ann'

        Raises:
            NoMatchingRuleError: no rule matches it.
        """
        for rule in self._rules:
            result = distinguished_name if rule is None else rule.apply(distinguished_name)
            if result is not None:
                return result
        raise NoMatchingRuleError(f"no rule of {_KEY} matches {distinguished_name}")

    def principal(self, certificate_der: bytes) -> Principal:
        """Return the principal of a certificate.

        Raises:
            NoMatchingRuleError: no rule matches its name.
        """
        from cryptography import x509

        return Principal(
            "User", self.name(distinguished_name(x509.load_der_x509_certificate(certificate_der)))
        )
