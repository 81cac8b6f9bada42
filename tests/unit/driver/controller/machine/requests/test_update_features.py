"""UpdateFeatures: levels that everybody serves, lowered only where nothing is lost."""

from datetime import timedelta
from typing import Any

import pytest
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest

from sparklog.driver.controller.machine.controller_result import ControllerResult
from sparklog.node.metadata.features import ELIGIBLE_LEADER_REPLICAS_FEATURE as ELR
from sparklog.node.metadata.schemas import FeatureLevelRecord, PartitionChangeRecord
from sparklog.protocol.errors import ErrorCode
from tests.unit.driver.controller.conversation import Conversation, creatable

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


def update(conversation: Conversation, *updates: tuple[str, int, int], **fields: Any) -> ControllerResult:
    return conversation.say(
        UpdateFeaturesRequest(
            timeout=timedelta(seconds=1),
            feature_updates=tuple(
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=upgrade_type)
                for name, level, upgrade_type in updates
            ),
            **fields,
        )
    )


@pytest.fixture
def conversation() -> Conversation:
    """Two brokers, and a partition of both, in sync and as many as min.insync.replicas asks for."""
    conversation = Conversation(min_insync_replicas="2").start(0, 1)
    conversation.create(creatable("t", assignments={0: (0, 1)}))
    return conversation


def test_feature_lowered_forgets_what_it_kept(conversation: Conversation) -> None:
    """A replica that stayed eligible would lead when the feature is raised again, whatever it missed."""
    conversation.take(conversation.controller.broker_gone(1, conversation.epoch(1)))
    assert conversation.partition().elr == (1,)
    decision = update(conversation, (ELR, 0, SAFE_DOWNGRADE))
    assert decision.reply.error_code is ErrorCode.none
    assert decision.records == [
        FeatureLevelRecord(name=ELR, feature_level=0),
        PartitionChangeRecord(partition_id=0, topic_id=conversation.topic_id(), eligible_leader_replicas=()),
    ]
    assert update(conversation, (ELR, 1, UPGRADE)).reply.error_code is ErrorCode.none
    assert conversation.image.features[ELR] == 1


def test_feature_that_a_partition_waits_by_is_not_lowered(conversation: Conversation) -> None:
    """With nobody in sync, only who is eligible can ever lead."""
    for broker_id in (1, 0):
        conversation.take(conversation.controller.broker_gone(broker_id, conversation.epoch(broker_id)))
    assert conversation.partition().isr == ()
    decision = update(conversation, (ELR, 0, UNSAFE_DOWNGRADE))
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.invalid_update_version)
    assert "t-0" in decision.reply.error_message


@pytest.mark.parametrize(
    ("feature", "level", "upgrade_type"),
    [
        (ELR, 0, UPGRADE),
        (ELR, 2, UPGRADE),
        (ELR, -1, SAFE_DOWNGRADE),
        (ELR, 0, 9),
        ("metadata.version", 29, SAFE_DOWNGRADE),
        ("metadata.version", 31, UPGRADE),
        ("kraft.version", 0, SAFE_DOWNGRADE),
        ("no.such.feature", 1, UPGRADE),
    ],
)
def test_level_that_is_not_served_or_not_asked_for_so_is_refused(
    conversation: Conversation, feature: str, level: int, upgrade_type: int
) -> None:
    """With Kafka's error, alone in its request."""
    decision = update(conversation, (feature, level, upgrade_type))
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.invalid_update_version)


def test_update_of_several_features_makes_those_that_can_be_made_and_names_the_rest(
    conversation: Conversation,
) -> None:
    """Kafka's tool names all features of a release, those that are not here beside those that are."""
    update(conversation, ("group.version", 0, SAFE_DOWNGRADE))
    decision = update(
        conversation,
        ("metadata.version", 30, UPGRADE),
        ("kraft.version", 1, UPGRADE),
        ("group.version", 1, UPGRADE),
        ("share.version", 1, UPGRADE),
    )
    assert decision.records == [FeatureLevelRecord(name="group.version", feature_level=1)]
    assert decision.reply.error_code is ErrorCode.none
    *made, refused = decision.reply.results
    assert [result.error_code for result in made] == [ErrorCode.none] * 3
    assert (refused.feature, refused.error_code) == ("share.version", ErrorCode.invalid_update_version)
    assert "share.version" in refused.error_message


def test_update_that_names_a_feature_twice_is_refused_as_a_whole(conversation: Conversation) -> None:
    """Which of the two was meant is unknown."""
    decision = update(conversation, (ELR, 1, UPGRADE), (ELR, 0, SAFE_DOWNGRADE))
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.invalid_request)


@pytest.mark.parametrize(("feature", "newest"), [("group.version", 1), ("transaction.version", 2)])
def test_level_of_groups_and_transactions_goes_down_and_up(
    conversation: Conversation, feature: str, newest: int
) -> None:
    """New clusters begin with the newest; those of an earlier version are at 0, and are raised by hand."""
    assert conversation.image.features[feature] == newest
    assert update(conversation, (feature, 0, UPGRADE)).reply.error_code is ErrorCode.invalid_update_version
    assert update(conversation, (feature, 0, SAFE_DOWNGRADE)).reply.error_code is ErrorCode.none
    assert feature not in conversation.image.features
    decision = update(conversation, (feature, newest, UPGRADE))
    assert decision.records == [FeatureLevelRecord(name=feature, feature_level=newest)]
    assert update(conversation, (feature, newest + 1, UPGRADE)).reply.error_code is (
        ErrorCode.invalid_update_version
    )


def test_level_that_is_there_already_is_no_change(conversation: Conversation) -> None:
    """A tool that is run twice succeeds twice."""
    decision = update(conversation, (ELR, 1, UPGRADE), ("metadata.version", 30, UPGRADE))
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.none)


def test_feature_update_that_is_only_tried_changes_nothing(conversation: Conversation) -> None:
    """kafka-features --dry-run."""
    decision = update(conversation, (ELR, 0, SAFE_DOWNGRADE), validate_only=True)
    assert (decision.records, decision.reply.error_code) == ([], ErrorCode.none)
