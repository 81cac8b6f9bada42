"""Random ACLs and requests, decided here and by Apache Kafka's StandardAuthorizer, side by side.

    python -m tests.compat.authorizer_cases --cases 10000 [--seed 1]

A case is a set of ACLs, what is configured beside them, and questions: whether somebody may do something,
whether he may do it to anything (KIP-679), and how many ACLs a filter finds. Kafka's answers come from
`StandardAuthorizerCases.java`, one JVM for all cases. Hypothesis makes and shrinks the cases.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote_plus

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.java_libraries import kafka_command
from sparklog.node.acls.acl import (
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    Principal,
)
from sparklog.node.acls.filter import AclFilter
from sparklog.node.acls.host import host_of
from sparklog.node.acls.machine.authorizer import Authorizer, AuthorizerSettings

PROGRAM: Final = Path(__file__).with_name("StandardAuthorizerCases.java")

_OPERATIONS: Final = [each for each in AclOperation if each > AclOperation.ANY]
_RESOURCE_TYPES: Final = [AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID]

# Few letters, so that names begin each other; and some beyond ASCII, and beyond one unit of UTF-16. None that
# sorts before the asterisk: with an ACL for `$ab`, whoever asks about `$c` has Kafka search for ever, and
# about `$ac` fail, for it goes on behind `*` with as many letters of that as the two names have in common.
_names = st.text("abc*-é𐐷", min_size=1, max_size=4) | st.sampled_from(["*", "a", "ab", "abc", "hardcode"])
_principals = st.sampled_from(["User:ann", "User:bob", "User:*", "Group:ann", "User:a:b", "User:"])
_hosts = st.sampled_from(["*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "::1"])
_acls = st.builds(
    Acl,
    st.sampled_from(_RESOURCE_TYPES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    _names,
    _principals,
    _hosts,
    st.sampled_from(_OPERATIONS),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY]),
)
_askers = st.builds(
    Principal, st.sampled_from(["User", "Group"]), st.sampled_from(["ann", "bob", "*", "a:b", ""])
)
_peers = st.sampled_from(["10.0.0.1:1", "10.0.0.3:1", "[::1]:1", "[::ffff:10.0.0.2]:1"])
_asked_operations = st.sampled_from([each for each in _OPERATIONS if each is not AclOperation.ALL])
_filters = st.builds(
    AclFilter,
    st.sampled_from([AclResourceType.ANY, *_RESOURCE_TYPES]),
    st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    st.none() | _names,
    st.none() | _principals,
    st.none() | _hosts,
    st.sampled_from([AclOperation.ANY, *_OPERATIONS]),
    st.sampled_from([AclPermissionType.ANY, AclPermissionType.ALLOW, AclPermissionType.DENY]),
)


@dataclass(frozen=True)
class Case:
    """ACLs, and questions about them."""

    acls: frozenset[Acl]
    super_users: tuple[Principal, ...]
    open_to_all: bool
    questions: tuple[tuple[Principal, str, AclOperation, AclResourceType, str], ...]
    filters: tuple[AclFilter, ...]

    def lines(self) -> list[str]:
        """Return what `StandardAuthorizerCases.java` is told, and asked."""
        super_users = ";".join(map(str, self.super_users))
        lines = [_line("acl", *acl) for acl in self.acls]
        lines.append(_line("authorizer", super_users, str(self.open_to_all).lower()))
        for principal, peer, operation, resource_type, name in self.questions:
            asker = (*principal, peer.rpartition(":")[0].strip("[]"), operation, resource_type)
            lines += [_line("ask", *asker, name), _line("any", *asker)]
        lines += [_line("filter", *(word or "" for word in wanted)) for wanted in self.filters]
        return [*lines, "end"]

    def answers(self) -> list[str]:
        """Return what is answered here."""
        settings = AuthorizerSettings(frozenset(self.super_users), self.open_to_all)
        authorizer = Authorizer(self.acls, settings)
        answers = []
        for principal, peer, operation, resource_type, name in self.questions:
            decisions = authorizer.decisions(principal, host_of(peer))
            answers.append(decisions.allows(operation, resource_type, name))
            answers.append(decisions.allows_any(operation, resource_type))
        told = ["ALLOWED" if allowed else "DENIED" for allowed in answers]
        return told + [str(sum(map(wanted.matches, self.acls))) for wanted in self.filters]


cases: Final = st.builds(
    Case,
    st.frozensets(_acls, max_size=12),
    st.lists(_askers.filter(lambda asker: ";" not in asker.name), max_size=1).map(tuple),
    st.booleans(),
    st.lists(
        st.tuples(_askers, _peers, _asked_operations, st.sampled_from(_RESOURCE_TYPES), _names),
        min_size=1,
        max_size=8,
    ).map(tuple),
    st.lists(_filters, max_size=2).map(tuple),
)


def _line(*words: object) -> str:
    return "\t".join(quote_plus(str(int(word)) if isinstance(word, int) else str(word)) for word in words)


class StandardAuthorizer:
    """Kafka's own, in a JVM."""

    def __enter__(self) -> Self:
        command = kafka_command(str(PROGRAM), java_options=("-Xmx256m", "-XX:TieredStopAtLevel=1"))
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._process.communicate(timeout=60)
        finally:
            self._process.kill()

    def answers(self, case: Case) -> list[str]:
        """Return what Kafka answers."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n".join(case.lines()) + "\n")
        stdin.flush()
        count = 2 * len(case.questions) + len(case.filters)
        return [stdout.readline().strip() for _ in range(count)]


def known_difference(question: str, theirs: str) -> bool:
    """Whether Kafka's answer to a question is a mistake that is not made here; no topic has such a name.

    - It puts who asks into a set beside `User:*`, which fails for a user of the name `*`.
    - An ACL for every resource, be it a DENY, is passed over for one whose name begins with `*`.
    """
    if theirs == "IllegalArgumentException":
        return True
    words = question.split("\t")
    return words[0] == "ask" and words[-1].startswith("%2A") and words[-1] != "%2A"


def agree(case: Case, kafka: StandardAuthorizer) -> None:
    """Fail if the two answer a question differently."""
    ours, theirs = case.answers(), kafka.answers(case)
    different = [
        (question, here, there)
        for question, here, there in zip(case.lines()[len(case.acls) + 1 :], ours, theirs, strict=False)
        if here != there and not known_difference(question, there)
    ]
    assert different == [], (case, different)


def main() -> int:
    """Compare as many cases as were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    count = asked = 0
    with StandardAuthorizer() as kafka:

        @seed(arguments.seed)
        @settings(
            max_examples=arguments.cases,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(cases)
        def compare(case: Case) -> None:
            nonlocal count, asked
            agree(case, kafka)
            count += 1
            asked += 2 * len(case.questions) + len(case.filters)

        compare()
    print(f"{count} cases, {asked} questions: no disagreement (seed {arguments.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
