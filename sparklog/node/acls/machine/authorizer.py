"""The authorizer: the permissions of principals by the ACLs of one metadata image.

Rules, which are those of Kafka's StandardAuthorizer:
- Super users may do anything.
- An ACL covers a resource if its literal name is the resource's or `*`, or its prefixed one begins it; and
  applies to a request if it names the principal or `User:*`, the host or `*`, and the operation or ALL.
- One DENY outweighs every ALLOW.
- ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, that of ALTER_CONFIGS implies DESCRIBE_CONFIGS; a
  DENY implies nothing.
- A request without an applicable ACL is denied; if no ACL covers the resource at all,
  allow.everyone.if.no.acl.found decides.

An authorizer is immutable: other ACLs make another authorizer from it. So decisions can be cached.

Source: Kafka's StandardAuthorizerData, and Authorizer.authorizeByResourceType (KIP-679).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple

from sparklog.node.acls.acl import (
    WILDCARD,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    Principal,
)

_ALL: Final = AclOperation.ALL
_DENY: Final = AclPermissionType.DENY
_IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}),
}
_ANY_NAME: Final = "hardcode"
"""The resource name that Kafka checks first when any name will do."""
MAX_DECISIONS: Final = 65_536
"""The cached decisions of all principals; resource names are arbitrary."""
MAX_KEPT_NAME: Final = 249
"""The longest topic name. Decisions on longer names, which may fill a request, are not cached."""

_Question = tuple[AclOperation, AclResourceType, str]


class AuthorizerSettings(NamedTuple):
    super_users: frozenset[Principal] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


class Rule(NamedTuple):
    """The reason of a decision."""

    allows: bool
    name: str
    acl: Acl | None = None

    def __str__(self) -> str:
        if self.acl is None:
            return self.name
        resource = f"{self.acl.resource_type.name}:{self.acl.pattern_type.name}:{self.acl.resource_name}"
        return (
            f"{self.name}({self.acl.permission_type.name} {self.acl.operation.name} to {self.acl.principal} "
            f"from {self.acl.host} on {resource})"
        )


_SUPER_USER: Final = Rule(True, "SuperUser")
_DEFAULT_DENY: Final = Rule(False, "DefaultDeny")
_DEFAULT_ALLOW: Final = Rule(True, "DefaultAllow")


class _Names:
    """The ACLs of resources of one type, by resource name. Immutable once created."""

    def __init__(self) -> None:
        self.literal: dict[str, tuple[Acl, ...]] = {}
        self.prefixed: dict[str, tuple[Acl, ...]] = {}
        self.prefix_lengths: tuple[int, ...] = ()

    def changed(self, added: Iterable[Acl], removed: Iterable[Acl]) -> "_Names":
        """Return the ACLs after a change; the cost is that of the change, not of all ACLs."""
        names = _Names()
        names.literal, names.prefixed = self.literal.copy(), self.prefixed.copy()
        changes: defaultdict[tuple[PatternType, str], tuple[list[Acl], list[Acl]]]
        changes = defaultdict(lambda: ([], []))
        for number, acls in enumerate((added, removed)):
            for acl in acls:
                changes[acl.pattern_type, acl.resource_name][number].append(acl)
        for (pattern_type, name), (coming, going) in changes.items():
            by_name = names._of(pattern_type)
            left = [*by_name.pop(name, ()), *coming]
            if going:
                left = list((Counter(left) - Counter(going)).elements())
            if left:
                by_name[name] = tuple(left)
        names.prefix_lengths = tuple(sorted(set(map(len, names.prefixed))))
        return names

    def _of(self, pattern_type: PatternType) -> dict[str, tuple[Acl, ...]]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def about(self, name: str) -> Iterator[Acl]:
        """Yield the ACLs that cover the resource."""
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())


class Authorizer:
    """The ACLs of one image, under the authorizer's settings."""

    def __init__(self, acls: Iterable[Acl], settings: AuthorizerSettings) -> None:
        self._settings = settings
        self._names = _changed({}, acls, ())
        self._decisions: dict[tuple[Principal, str], Decisions] = {}
        self._kept = 0

    def changed(self, added: Iterable[Acl], removed: Iterable[Acl]) -> "Authorizer":
        """Return the authorizer after a change of ACLs; all of `removed` must exist."""
        authorizer = Authorizer((), self._settings)
        authorizer._names = _changed(self._names, added, removed)
        return authorizer

    def decisions(self, principal: Principal, host: str) -> "Decisions":
        try:
            return self._decisions[principal, host]
        except KeyError:
            self.keep_one_more()
            decisions = self._decisions[principal, host] = Decisions(self, principal, host)
            return decisions

    def keep_one_more(self) -> None:
        """Count a cached decision; drop all of them when there are too many."""
        self._kept += 1
        if self._kept > MAX_DECISIONS:
            for decisions in self._decisions.values():
                decisions.forget()
            self._decisions.clear()
            self._kept = 1

    def rule(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        resource_name: str,
    ) -> Rule:
        if principal in self._settings.super_users:
            return _SUPER_USER
        allowing: Acl | None = None
        is_named = False
        names = self._names.get(resource_type)
        for acl in () if names is None else names.about(resource_name):
            is_named = True
            if not acl.is_for(principal, host) or not _is_about(acl, operation):
                continue
            if acl.permission_type is _DENY:
                return Rule(False, "MatchingAcl", acl)
            allowing = allowing or acl
        if allowing is not None:
            return Rule(True, "MatchingAcl", allowing)
        if not is_named and self._settings.allow_everyone_if_no_acl_found:
            return _DEFAULT_ALLOW
        return _DEFAULT_DENY

    def allows_any(
        self, principal: Principal, host: str, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Whether the operation is allowed on any name, existing or not (KIP-679).

        Operations that imply it do not count.
        """
        if self.rule(principal, host, operation, resource_type, _ANY_NAME).allows:
            return True
        names = self._names.get(resource_type)
        if names is None:
            return False

        def said(by_name: dict[str, tuple[Acl, ...]]) -> tuple[Set[str], Set[str]]:
            allowed: set[str] = set()
            denied: set[str] = set()
            for name, acls in by_name.items():
                for acl in acls:
                    if acl.operation in (_ALL, operation) and acl.is_for(principal, host):
                        (denied if acl.permission_type is _DENY else allowed).add(name)
            return allowed, denied

        literal_allowed, literal_denied = said(names.literal)
        prefixed_allowed, prefixed_denied = said(names.prefixed)
        if WILDCARD in literal_denied:
            return False
        if WILDCARD in literal_allowed:
            return True
        return any(
            not any(name[:length] in prefixed_denied for length in range(1, len(name) + 1))
            for name in (literal_allowed - literal_denied) | prefixed_allowed
        )


class Decisions:
    """The cached decisions of one authorizer on one principal at one host."""

    __slots__ = ("_authorizer", "_by_type", "_made", "host", "principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = host
        self._made: dict[_Question, Rule] = {}
        self._by_type: dict[tuple[AclOperation, AclResourceType], bool] = {}

    def allows(self, operation: AclOperation, resource_type: AclResourceType, resource_name: str) -> bool:
        return self.rule(operation, resource_type, resource_name).allows

    def allows_afresh(
        self, operation: AclOperation, resource_type: AclResourceType, resource_name: str
    ) -> bool:
        """As `allows`, without the cache: any thread may call it, since ACLs are immutable."""
        return self._authorizer.rule(
            self.principal, self.host, operation, resource_type, resource_name
        ).allows

    def allows_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        question = (operation, resource_type)
        allowed = self._by_type.get(question)
        if allowed is None:
            allowed = self._authorizer.allows_any(self.principal, self.host, *question)
            self._by_type[question] = allowed
        return allowed

    def rule(self, operation: AclOperation, resource_type: AclResourceType, resource_name: str) -> Rule:
        question = (operation, resource_type, resource_name)
        try:
            return self._made[question]
        except KeyError:
            rule = self._authorizer.rule(self.principal, self.host, *question)
            if len(resource_name) <= MAX_KEPT_NAME:
                self._authorizer.keep_one_more()
                self._made[question] = rule
            return rule

    def forget(self) -> None:
        self._made.clear()
        self._by_type.clear()


def _changed(
    names: Mapping[AclResourceType, _Names], added: Iterable[Acl], removed: Iterable[Acl]
) -> dict[AclResourceType, _Names]:
    changes: defaultdict[AclResourceType, tuple[list[Acl], list[Acl]]] = defaultdict(lambda: ([], []))
    for number, acls in enumerate((added, removed)):
        for acl in acls:
            changes[acl.resource_type][number].append(acl)
    changed = {each: names.get(each, _NO_NAMES).changed(*change) for each, change in changes.items()}
    return {**names, **changed}


_NO_NAMES: Final = _Names()


def _is_about(acl: Acl, operation: AclOperation) -> bool:
    if acl.operation in (_ALL, operation):
        return True
    return acl.permission_type is not _DENY and acl.operation in _IMPLYING.get(operation, ())
