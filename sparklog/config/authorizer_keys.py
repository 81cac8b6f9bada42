"""The keys about who may do what: whether anybody is asked, and what holds beside the ACLs."""

from dataclasses import dataclass, field
from typing import Final

from sparklog.acls.acl import Principal
from sparklog.acls.machine.authorizer import AuthorizerSettings
from sparklog.config.definition import ConfigError, ConfigType, Rule, config_key
from sparklog.security.inside import INSIDE

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, kw_only=True)
class AuthorizerKeys:
    """Who may do what, as far as it is configured."""

    authorizer_class_name: str = config_key(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        f"Empty: everybody may do everything. {STANDARD_AUTHORIZER}: what ACLs allow, by the rules that this"
        " class has in Kafka.",
        Rule(f"empty or {STANDARD_AUTHORIZER}", ("", STANDARD_AUTHORIZER).__contains__),
    )
    super_users: str = config_key(
        "super.users",
        ConfigType.STRING,
        "",
        "Who may do everything whatever ACLs say, as User:name;User:name.",
    )
    allow_everyone_if_no_acl_found: bool = config_key(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        "Whether everybody may do everything to what no ACL is about.",
    )
    authorizer: AuthorizerSettings | None = field(init=False, default=None, repr=False, compare=False)
    """What holds beside the ACLs; None where nobody is asked."""

    def __post_init__(self) -> None:
        """Read the super users."""
        super_users = frozenset(_principals(self.super_users)) | {INSIDE}
        if self.authorizer_class_name:
            settings = AuthorizerSettings(super_users, self.allow_everyone_if_no_acl_found)
            object.__setattr__(self, "authorizer", settings)


def _principals(text: str) -> list[Principal]:
    """Return the principals of a list.

    >>> _principals("User:ann; User:CN=bob,O=us")
    [Principal(type='User', name='ann'), Principal(type='User', name='CN=bob,O=us')]

    Raises:
        ConfigError: one of them is none.
    """
    principals = []
    for item in filter(None, map(str.strip, text.split(";"))):
        principal_type, colon, name = item.partition(":")
        if not (principal_type and colon):
            raise ConfigError("super.users", text, f"{item} is no principal; write it as User:{item}")
        principals.append(Principal(principal_type, name))
    return principals
