"""The stories of Kafka's literature: what replicas, brokers and controllers do step by step, as text.

Each test plays one file of `stories/` on the production machines and compares what comes of it. The files are
to be read; `conversation.py` says what may stand in them.
"""

from tests.scenarios.conversation import STORIES, told


def play(name: str) -> str:
    """Play a story, and return it."""
    text = (STORIES / f"{name}.txt").read_text()
    assert told(text) == text, "to see the difference: python -m tests.scenarios; git diff tests/scenarios"
    return text


def acts(story: str) -> list[str]:
    """Return the acts of a story that tells it with different rules or circumstances."""
    return story.split("# --- ")[1:]


def test_isr_shrinks_when_a_follower_stalls_and_grows_when_it_is_back() -> None:
    """Nothing is committed without a member of the ISR, so a stalled one must leave it, and only then."""
    story = play("isr_shrinks_and_grows")
    assert story.index("proposes the ISR 0 1\n") < story.index("b is acknowledged")


def test_high_watermark_alone_loses_a_record_after_two_quick_restarts_and_leader_epochs_keep_it() -> None:
    """KIP-101, scenario 1: why a follower never cuts its log to its high watermark."""
    old_rule, leader_epochs, broker_epochs = acts(play("two_quick_restarts"))
    assert "LOST, though acknowledged: y" in old_rule
    assert "LOST" not in leader_epochs + broker_epochs


def test_high_watermark_alone_lets_replicas_diverge_after_both_died_and_leader_epochs_do_not() -> None:
    """KIP-101, scenario 2: two replicas with different records at one offset, and nobody who knows."""
    old_rule, leader_epochs = acts(play("both_die_and_come_back"))
    assert "DIVERGED at offset 1: broker 0 has y@0, broker 1 has z@3" in old_rule
    assert "DIVERGED" not in leader_epochs


def test_all_replicas_die_and_the_first_one_back_is_or_is_not_allowed_to_lead() -> None:
    """Only who has everything may lead, unless nobody can know who has, or less is asked for."""
    killed, without_power, stopped, allowed, asked = acts(play("all_replicas_die"))
    assert "LOST" not in killed + without_power + stopped + asked
    assert "leader broker 1, recovering" in without_power
    assert "LOST, though acknowledged: b" in allowed


def test_acks_1_loses_what_acks_all_keeps() -> None:
    """The one is a promise of the leader, the other of every replica in sync."""
    story = play("acks")
    assert "lost, acknowledged by a leader alone: a" in story
    assert "LOST" not in story


def test_an_old_controller_wakes_up_and_is_refused() -> None:
    """Two drivers at once must not both change anything (KIP-595, KIP-996)."""
    story = play("an_old_controller_wakes_up")
    assert "refuses driver A in epoch 1: FENCED_LEADER_EPOCH" in story


def test_a_broker_fails_while_it_leads_while_it_follows_and_while_it_does_both() -> None:
    """What was acknowledged is there, and what was not may be, whatever the broker did when it died."""
    assert "LOST" not in play("a_broker_fails")


def test_a_topic_is_deleted_and_created_anew_while_one_of_its_replicas_is_away() -> None:
    """A log of the same name is not a log of the same topic (KIP-516)."""
    down, unaware = acts(play("deleted_while_away"))
    assert "finds a stray log and sets it aside" in down
    assert "is refused: UNKNOWN_TOPIC_ID" in unaware


def test_a_network_cut_leaves_the_leader_alone_with_its_clients() -> None:
    """It goes on while its lease lasts, and acknowledges nothing with acks=all that nobody else has."""
    story = play("alone_with_its_clients")
    assert story.index("the lease of broker 0 is over") < story.index("broker 1 leads in epoch 1")
    assert "LOST" not in story


def test_every_story_is_told() -> None:
    """A file that no test plays would say what was true once."""
    source = (STORIES.parent / "test_stories.py").read_text()
    assert [path.stem for path in STORIES.glob("*.txt") if f'play("{path.stem}")' not in source] == []
