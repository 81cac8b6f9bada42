"""The keys of authorization: the authorizer, the super users, and the rule for resources without ACLs."""

from dataclasses import dataclass, field
from typing import Final

from sparklog.node.acls.acl import Principal
from sparklog.node.acls.machine.authorizer import AuthorizerSettings
from sparklog.node.config.definition import ConfigError, Rule
from sparklog.node.config.key_table import broker_key
from sparklog.node.security.application_secret import CLUSTER_PRINCIPAL

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, kw_only=True)
class AuthorizerKeys:
    authorizer_class_name: str = broker_key(
        "authorizer.class.name",
        Rule(f"empty or {STANDARD_AUTHORIZER}", ("", STANDARD_AUTHORIZER).__contains__),
    )
    super_users: str = broker_key("super.users")
    allow_everyone_if_no_acl_found: bool = broker_key("allow.everyone.if.no.acl.found")
    authorizer: AuthorizerSettings | None = field(init=False, default=None, repr=False, compare=False)
    """The rules that hold besides the ACLs; None without an authorizer."""

    def __post_init__(self) -> None:
        super_users = frozenset(_principals(self.super_users)) | {CLUSTER_PRINCIPAL}
        if self.authorizer_class_name:
            settings = AuthorizerSettings(super_users, self.allow_everyone_if_no_acl_found)
            object.__setattr__(self, "authorizer", settings)


def _principals(text: str) -> list[Principal]:
    """Return the principals of a semicolon-separated list.

    >>> _principals("User:ann; User:CN=bob,O=us")
    [Principal(type='User', name='ann'), Principal(type='User', name='CN=bob,O=us')]

    Raises:
        ConfigError: an entry is not type:name.
    """
    principals = []
    for item in filter(None, map(str.strip, text.split(";"))):
        principal_type, colon, name = item.partition(":")
        if not (principal_type and colon):
            raise ConfigError("super.users", text, f"{item} is not a principal; write it as User:{item}")
        principals.append(Principal(principal_type, name))
    return principals
