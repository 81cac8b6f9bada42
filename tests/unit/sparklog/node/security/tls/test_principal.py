"""Whose a certificate is: names as Java writes them, and Kafka's rules for them."""

import ssl
from typing import Final

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from sparklog.node.security.tls.errors import TlsConfigError
from sparklog.node.security.tls.principal import NoMatchingRuleError, PrincipalMapper, distinguished_name
from tests.certificates import Authority

AUTHORITY = Authority()
DN = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("DEFAULT", DN, DN),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", DN, "Duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),.*$/$1@$2/L", DN, "duke@serviceusers"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),.*$/$1@$2/U", DN, "DUKE@SERVICEUSERS"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/L,DEFAULT", DN, DN),
        ("RULE:^CN=(.*?),.*$/$1@$4/", DN, "Duke@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", DN, "Duke2"),
        ("RULE:^CN=(.*?),.*$/\\\\$1/", DN, "\\Duke"),
        (" RULE:^CN=(.*?),OU=(.*?),.*$/$1/ ,  DEFAULT ", DN, "Duke"),
        ("RULE:.*/x/", DN, "xx"),
    ],
)
def test_first_rule_that_matches_says_who_it_is(rules: str, name: str, expected: str) -> None:
    """Kafka's syntax (SslPrincipalMapperTest), to the last corner: ACLs are for what comes out."""
    assert PrincipalMapper(rules).name(name) == expected


def test_name_that_no_rule_matches_is_nobodys() -> None:
    """He is refused, and not let in under a name that nobody gave him."""
    with pytest.raises(NoMatchingRuleError, match=r"no rule of .* matches CN=Duke"):
        PrincipalMapper("RULE:^CN=Ann$/ann/").name(DN)


@pytest.mark.parametrize(
    "rules",
    ["default", "RULE:^CN=(.*?)$", "RULE:^CN=(.*?/$1/", "RULE:a/b/LU", "DEFAULT/L", "RULE:a/b/ DEFAULT"],
)
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    """A listener with half of its rules would call people by names that others have ACLs for."""
    with pytest.raises(TlsConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapper(rules)


BY_JAVA: Final = [
    ([("COUNTRY_NAME", "DE"), ("ORGANIZATION_NAME", "Org"), ("COMMON_NAME", "ann")], "CN=ann,O=Org,C=DE"),
    ([("COMMON_NAME", "ann,OU=admins")], "CN=ann\\,OU\\=admins"),
    ([("COMMON_NAME", 'a+b"c;d<e>f\\g=h#i')], 'CN=a\\+b\\"c\\;d\\<e\\>f\\\\g\\=h\\#i'),
    ([("COMMON_NAME", " # ann ")], "CN=\\ \\# ann\\ "),
    ([("COMMON_NAME", "Jürgen Ωmega")], "CN=Jürgen Ωmega"),
    (
        [("EMAIL_ADDRESS", "ann@example.com"), ("COMMON_NAME", "ann")],
        "CN=ann,1.2.840.113549.1.9.1=#160f616e6e406578616d706c652e636f6d",
    ),
    ([("SERIAL_NUMBER", "17"), ("COMMON_NAME", "ann")], "CN=ann,2.5.4.5=#13023137"),
    ([("DOMAIN_COMPONENT", "example"), ("USER_ID", "u1"), ("COMMON_NAME", "a")], "CN=a,UID=u1,DC=example"),
    (
        [("STATE_OR_PROVINCE_NAME", "S"), ("LOCALITY_NAME", "L"), ("ORGANIZATIONAL_UNIT_NAME", "U")],
        "OU=U,L=L,ST=S",
    ),
    ([("STREET_ADDRESS", "Main St. 1"), ("TITLE", "Dr")], "2.5.4.12=#0c024472,STREET=Main St. 1"),
]


@pytest.mark.parametrize(("attributes", "expected"), BY_JAVA)
def test_name_is_written_as_java_writes_it(attributes: list[tuple[str, str]], expected: str) -> None:
    """Who moves here has ACLs for the names that X500Principal.getName() made of his certificates."""
    name = x509.Name([x509.NameAttribute(getattr(NameOID, kind), value) for kind, value in attributes])
    assert distinguished_name(AUTHORITY.certify(name).certificate) == expected


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("ann", _ASN1Type.IA5String, "CN=ann+OU=shop"),
        ("1", _ASN1Type.NumericString, "CN=#120131+OU=shop"),
        ("ann", _ASN1Type.VisibleString, "CN=#1a03616e6e+OU=shop"),
        ("a", _ASN1Type.UniversalString, "CN=#1c0400000061+OU=shop"),
        ("an", _ASN1Type.BMPString, "CN=\\00a\\00n+OU=shop"),
        ("a\0,b", _ASN1Type.UTF8String, "CN=a\\00\\,b+OU=shop"),
        ("ann of the shop", _ASN1Type.UTF8String, "OU=shop+CN=ann of the shop"),
    ],
)
def test_part_of_several_attributes_and_rarer_types_is_written_as_java_writes_it(
    value: str, kind: _ASN1Type, expected: str
) -> None:
    """Attributes of one part stand in the certificate's order, as DER has it, and not in the alphabet's."""
    part = x509.RelativeDistinguishedName(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, value, kind, _validate=False),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "shop"),
        ]
    )
    assert distinguished_name(AUTHORITY.certify(x509.Name([part])).certificate) == expected


def test_name_with_a_part_that_is_no_text_is_nobodys() -> None:
    """A string of bits may stand there, and the library that reads names raises what nobody expects."""
    text, bits = b"\x06\x03\x55\x04\x03\x0c\x09localhost", b"\x06\x03\x55\x04\x03\x03\x09localhost"
    damaged = ssl.PEM_cert_to_DER_cert(AUTHORITY.certify().damaged(text, bits))
    with pytest.raises(NoMatchingRuleError, match="its name cannot be read"):
        PrincipalMapper("DEFAULT").principal(damaged)
