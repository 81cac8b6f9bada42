"""Members that subscribe by a regular expression (RE2's)."""

import pytest

from sparklog.executor.coordinators.groups.machine.consumer.regular_expressions import matching_topics
from sparklog.executor.coordinators.records.consumer_offsets import ConsumerGroupRegularExpressionKey
from sparklog.protocol.errors import ErrorCode
from tests.unit.executor.coordinators.groups.consumer_conversation import ConsumerConversation
from tests.unit.executor.coordinators.groups.group_conversation import GROUP


def resolved(talk: ConsumerConversation) -> dict[str, set[str]]:
    return {regex: set(meant.topics) for regex, meant in talk.group.resolved.items()}


def test_regular_expression_means_all_topics_whose_whole_name_it_matches() -> None:
    talk = ConsumerConversation({"t": 1, "ta": 2, "tb": 1, "u": 1})

    talk.enter("a", subscribed_topic_regex="t[a-z]+")

    assert resolved(talk) == {"t[a-z]+": {"ta", "tb"}}
    assert talk.settle_members("a") == {"a": {"ta": {0, 1}, "tb": {0}}}
    assert talk.group.is_subscribed_to("ta")
    assert not talk.group.is_subscribed_to("t")


def test_regular_expression_is_resolved_beside_the_loop_and_the_member_is_in_the_group_meanwhile() -> None:
    talk = ConsumerConversation({"ta": 1})
    talk.runs_at_once = False

    answer = talk.enter("a", subscribed_topic_regex="t.*")

    assert (answer.error_code, answer.member_epoch) == (ErrorCode.none, 1)
    talk.enter("b", subscribed_topic_regex="u.*")
    assert len(talk.waiting) == 1, "one at a time for a group"
    talk.finish_in_executor()
    assert resolved(talk) == {"t.*": {"ta"}}


def test_regular_expression_and_names_are_subscribed_to_together() -> None:
    talk = ConsumerConversation({"t": 1, "u": 1, "v": 1})

    talk.enter("a", "u", subscribed_topic_regex="t.*")

    assert talk.settle_members("a") == {"a": {"t": {0}, "u": {0}}}


def test_regular_expression_means_no_topic_that_the_member_may_not_describe() -> None:
    """What there is that somebody may not see must not be found out by `.*`, nor be assigned to him."""
    talk = ConsumerConversation({"ta": 1, "tb": 1})

    talk.enter("a", subscribed_topic_regex="t.*", may_describe={"ta"}.__contains__)

    assert resolved(talk) == {"t.*": {"ta"}}
    assert talk.settle_members("a") == {"a": {"ta": {0}}}


@pytest.mark.parametrize("regex", ["(", "a{1001}", "(?=a)", r"(a)\1"])
def test_regular_expression_that_re2_does_not_know_is_refused(regex: str) -> None:
    """Back references and look-aheads are what makes other engines take for ever."""
    talk = ConsumerConversation()

    answer = talk.enter("a", subscribed_topic_regex=regex)

    assert answer.error_code is ErrorCode.invalid_regular_expression
    assert answer.error_message.startswith(
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: "
    )
    assert (talk.log, talk.waiting) == ([], [])


def test_regular_expression_that_explodes_elsewhere_is_matched_in_time() -> None:
    """Kafka's coordinator takes time in proportion to the name; a backtracking one would not come back."""
    name = "a" * 249

    assert matching_topics(["(a*)*b", "(a|aa)+"], [name]) == {"(a*)*b": frozenset(), "(a|aa)+": {name}}


def test_regular_expression_with_many_groups_is_matched_in_time() -> None:
    """What its groups would hold nobody asks; telling it takes minutes here."""
    names = ["a" * 200 + str(number) for number in range(300)]

    assert matching_topics(["(a*)*" * 170 + "[0-9]+"], names) == {"(a*)*" * 170 + "[0-9]+": frozenset(names)}


@pytest.mark.parametrize(
    "regex",
    ["(?i)" + r"\pL" * 65, "a?" * 513, "x{1000}" * 513, "(x" * 257 + ")*" * 257, r"(?i)\pL{1000}"],
    ids=["classes", "options", "repetitions", "groups", "size"],
)
def test_regular_expression_that_takes_long_to_read_is_refused(regex: str) -> None:
    """The loop waits while RE2 reads it, which took seconds."""
    assert ConsumerConversation().enter("a", subscribed_topic_regex=regex).error_code is (
        ErrorCode.invalid_regular_expression
    )


def test_regular_expression_that_names_a_thousand_topics_is_taken() -> None:
    """It is long, and says little."""
    names = "|".join(f"topic-{number}" for number in range(3_000))
    assert ConsumerConversation().enter("a", subscribed_topic_regex=names).error_code is ErrorCode.none


def test_topic_that_is_created_and_matches_is_assigned_ten_seconds_after_the_last_look_at_the_earliest() -> (
    None
):
    talk = ConsumerConversation({"ta": 1})
    talk.enter("a", subscribed_topic_regex="t.*")
    talk.settle_members("a")

    talk.change_topics({"ta": 1, "tb": 1, "u": 1})
    talk.beat("a")
    assert resolved(talk) == {"t.*": {"ta"}}
    talk.pass_time(10_001)
    talk.beat("a")

    assert resolved(talk) == {"t.*": {"ta", "tb"}}
    assert talk.settle_members("a") == {"a": {"ta": {0}, "tb": {0}}}


def test_regular_expressions_are_looked_at_again_after_their_interval() -> None:
    talk = ConsumerConversation({"ta": 1}, group_consumer_regex_refresh_interval_ms="30000")
    talk.enter("a", subscribed_topic_regex="t.*")
    first = talk.group.resolved["t.*"].timestamp_ms
    for _ in range(7):
        talk.pass_time(5_000)
        talk.beat("a")

    assert talk.group.resolved["t.*"].timestamp_ms == first + 35_000
    assert talk.group.group_epoch == 2, "nothing else than before"


def test_second_member_with_the_same_expression_costs_no_second_look() -> None:
    talk = ConsumerConversation({"ta": 2})
    for member_id in "ab":
        talk.enter(member_id, subscribed_topic_regex="t.*")
        talk.pass_time(1_000)

    written = [key for key, _ in talk.records if isinstance(key, ConsumerGroupRegularExpressionKey)]
    assert len(written) == 1
    assert talk.settle_members("a", "b") == {"a": {"ta": {0}}, "b": {"ta": {1}}}


def test_expression_that_nobody_has_any_more_is_forgotten() -> None:
    talk = ConsumerConversation({"ta": 1, "u": 1})
    talk.enter("a", subscribed_topic_regex="t.*")
    talk.enter("b", subscribed_topic_regex="t.*")
    talk.settle_members("a", "b")

    talk.send("a", -1)
    assert resolved(talk) == {"t.*": {"ta"}}
    talk.send("b", -1)

    assert (resolved(talk), talk.group.is_subscribed_to("ta")) == ({}, False)


def test_member_that_goes_from_an_expression_to_names_gives_up_what_only_it_meant() -> None:
    talk = ConsumerConversation({"ta": 1, "u": 1})
    talk.enter("a", subscribed_topic_regex="t.*")
    talk.settle_members("a")

    talk.beat("a", subscribed_topic_regex="", names=("u",))

    assert talk.settle_members("a") == {"a": {"u": {0}}}
    assert resolved(talk) == {}


def test_result_for_a_group_that_has_gone_is_dropped() -> None:
    talk = ConsumerConversation({"ta": 1})
    talk.runs_at_once = False
    talk.enter("a", subscribed_topic_regex="t.*")
    talk.send("a", -1)
    _, tombstones, _ = talk.machine.delete_group(GROUP)
    for record in tombstones:
        talk.machine.replay(record, None)

    talk.finish_in_executor()

    assert talk.machine.groups.get(GROUP) is None


def test_next_coordinator_knows_what_expressions_mean_and_looks_again() -> None:
    """Topics may have been created while it did not look."""
    talk = ConsumerConversation({"ta": 1})
    talk.enter("a", subscribed_topic_regex="t.*")
    talk.settle_members("a")
    talk.change_topics({"ta": 1, "tb": 1})

    talk.restart()
    assert resolved(talk) == {"t.*": {"ta"}}
    talk.pass_time(10_001)

    assert talk.settle_members("a") == {"a": {"ta": {0}, "tb": {0}}}
