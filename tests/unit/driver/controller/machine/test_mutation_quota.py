"""How many partitions a client may create and delete: refused topic by topic, or waited for."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.create_partitions.v3 import CreatePartitionsRequest
from kio.schema.create_partitions.v3.request import CreatePartitionsTopic
from kio.schema.create_topics.v7 import CreateTopicsRequest
from kio.schema.delete_topics.v6 import DeleteTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicState

from sparklog.driver.controller.machine.mutation_quota import MutationQuota
from sparklog.node.config.client_quotas import CONTROLLER_MUTATION_RATE
from sparklog.node.quotas.machine.client_rates import TokenQuota, token_quotas
from sparklog.node.rates import QuotaWindows
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable

NONE, EXCEEDED = ErrorCode.none, ErrorCode.throttling_quota_exceeded


@pytest.fixture
def conversation() -> Conversation:
    """A cluster of one broker."""
    return Conversation().start(0)


@pytest.fixture
def tokens() -> TokenQuota:
    """One partition a second, of which five may come at once."""
    quotas = token_quotas(CONTROLLER_MUTATION_RATE, QuotaWindows(samples=5, window_ms=1000))
    quotas.update({(("user", None),): {CONTROLLER_MUTATION_RATE: 1.0}})
    quota = quotas.of("ANONYMOUS", "c", 0)
    assert quota is not None
    return quota


def create(conversation: Conversation, quota: MutationQuota, *topics: tuple[str, int]) -> list[ErrorCode]:
    """Create topics of so many partitions; return what became of each."""
    decision = conversation.controller.handle(
        CreateTopicsRequest(
            topics=tuple(creatable(name, count, 1) for name, count in topics),
            timeout=timedelta(seconds=1),
            validate_only=False,
        ),
        0,
        quota,
    )
    conversation.take(decision)
    return [topic.error_code for topic in decision.reply.topics]


def test_strict_quota_refuses_the_topics_behind_the_one_that_spends_it(
    conversation: Conversation, tokens: TokenQuota
) -> None:
    """A topic is never made by halves, and what was refused can be asked for again when the time is over."""
    quota = MutationQuota(tokens, strict=True, now_ms=0)
    assert create(conversation, quota, ("a", 4), ("b", 3), ("c", 1)) == [NONE, NONE, EXCEEDED]
    assert quota.throttle_ms(0) == 2_000
    assert quota.throttle_ms(500) == 1_500
    assert sorted(conversation.image.topics.by_name) == ["a", "b"]
    early = MutationQuota(tokens, strict=True, now_ms=1_999)
    assert create(conversation, early, ("c", 1)) == [EXCEEDED]
    in_time = MutationQuota(tokens, strict=True, now_ms=2_000)
    assert create(conversation, in_time, ("c", 1)) == [NONE]
    assert in_time.throttle_ms(2_000) == 0


def test_permissive_quota_does_all_and_has_its_client_wait(
    conversation: Conversation, tokens: TokenQuota
) -> None:
    """A client that does not know the error would give up instead of waiting."""
    quota = MutationQuota(tokens, strict=False, now_ms=0)
    assert create(conversation, quota, ("a", 4), ("b", 3), ("c", 2)) == [NONE] * 3
    assert quota.throttle_ms(0) == 4_000


def test_deleted_and_added_partitions_count_as_created_ones(
    conversation: Conversation, tokens: TokenQuota
) -> None:
    """Each is a record for every broker to act on."""
    create(conversation, MutationQuota(None, strict=True, now_ms=0), ("a", 3), ("b", 1), ("c", 1))

    def ask(request: Any) -> Any:
        decision = conversation.controller.handle(request, 0, MutationQuota(tokens, strict=True, now_ms=0))
        return conversation.take(decision).reply

    more = CreatePartitionsTopic(name="b", count=4, assignments=None)
    added = ask(CreatePartitionsRequest(topics=(more,), timeout=timedelta(seconds=1), validate_only=False))
    assert [topic.error_code for topic in added.results] == [NONE]
    states = tuple(DeleteTopicState(name=name, topic_id=None) for name in ("a", "c"))
    deleted = ask(DeleteTopicsRequest(topics=states, timeout=timedelta(seconds=1)))
    assert [topic.error_code for topic in deleted.responses] == [NONE, EXCEEDED]


def test_what_is_refused_for_another_reason_costs_nothing(
    conversation: Conversation, tokens: TokenQuota
) -> None:
    """Mistakes must not use up what a client may do."""
    quota = MutationQuota(tokens, strict=True, now_ms=0)
    create(conversation, quota, ("a", 1))
    assert create(conversation, quota, *[("a", 100)], ("no/slash", 100), ("b", 0), ("c", 4)) == [
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_partitions,
        NONE,
    ]
    assert tokens.throttle_ms(0) == 0
