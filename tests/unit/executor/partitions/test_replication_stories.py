"""Leader and follower machines together: the stories of KIP-101 and KIP-279, and any story at all."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog.executor.partitions.machine.events import (
    IsrProposalAnswered,
    PartitionChanged,
    ProposeIsr,
    Ticked,
)
from sparklog.protocol.errors import ErrorCode
from tests.examples import examples
from tests.unit.executor.partitions.memory_log import Node

REPLICAS = (0, 1, 2)


def values(node: Node) -> str:
    return "".join(value for _, value in node.log.records)


def test_story_high_watermark_alone_would_lose_a_record_after_two_quick_restarts() -> None:
    """KIP-101, scenario 1: B has a committed record above its high watermark, restarts, then must lead."""
    a, b = Node(0), Node(1)
    a.lead(0, 0, (0, 1), {0, 1})
    b.follow(0, 0)
    a.append("x")
    b.fetch_from(a)
    a.append("y")
    b.fetch_from(a)
    b.fetch_from(a)
    assert a.high_watermark == 2  # y is acknowledged
    b.high_watermark = 1  # all that B had written down about it
    # B restarts as a follower of A: it must not cut its log to its high watermark.
    b.follow(0, 0)
    assert values(b) == "xy"
    # A dies before B's next fetch; B leads, A comes back as its follower.
    b.lead(1, 1, (0, 1), {1})
    a.follow(1, 1)
    a.fetch_from(b)
    assert values(a) == values(b) == "xy"


def test_story_high_watermark_alone_would_let_replicas_diverge_after_both_died() -> None:
    """KIP-101, scenario 2: both die, the one that is behind comes back first and writes on."""
    a, b = Node(0), Node(1)
    a.lead(0, 0, (0, 1), {0, 1})
    b.follow(0, 0)
    a.append("x")
    b.fetch_from(a)
    a.append("y")  # only on A when the power goes
    b.lead(1, 1, (0, 1), {1})
    b.append("z")
    assert b.high_watermark == 2
    a.follow(1, 1)
    a.fetch_from(b)
    a.fetch_from(b)
    assert values(a) == values(b) == "xz"


def test_story_of_fast_failovers_is_told_down_to_the_last_common_epoch() -> None:
    """KIP-279: each wrote an epoch the other has not; one round of truncation would not be enough."""
    a, b = Node(0), Node(1)
    a.log.records = [(0, "m"), (1, "a"), (1, "b"), (4, "c")]
    b.log.records = [(0, "m"), (2, "d"), (3, "e"), (3, "f")]
    b.lead(5, 5, (0, 1), {1})
    b.append("g")
    a.follow(5, 1)
    for _ in range(4):
        a.fetch_from(b)
    assert values(a) == values(b) == "mdefg"


def test_story_of_an_unclean_leader_with_a_shorter_log_cuts_the_longer_one() -> None:
    """The topic chose availability: what the new leader never had is gone, and both agree on that."""
    a, b = Node(0), Node(1)
    a.log.records = [(0, "m"), (0, "n"), (0, "o")]
    a.high_watermark = 3
    b.log.records = [(0, "m")]
    b.lead(1, 1, (0, 1), {1})
    a.follow(1, 1)
    a.fetch_from(b)
    a.fetch_from(b)
    assert values(a) == values(b) == "m"
    assert a.high_watermark == 1


class Story:
    """Three replicas and a controller that elects cleanly, driven by Hypothesis."""

    def __init__(self) -> None:
        self.nodes = [Node(broker_id) for broker_id in REPLICAS]
        self.leader_epoch = self.partition_epoch = 0
        self.leader = 0
        self.isr = set(REPLICAS)
        self.under_way: list[ProposeIsr] = []
        self.now_ms = 0
        self.count = 0
        self.acknowledged: list[tuple[int, str]] = []
        self.highest = dict.fromkeys(REPLICAS, 0)
        self._publish_election()

    def _publish_election(self) -> None:
        for node in self.nodes:
            if node.broker_id == self.leader:
                node.lead(self.leader_epoch, self.partition_epoch, REPLICAS, self.isr)
            else:
                node.follow(self.leader_epoch, self.leader)

    def step(self, action: str, who: int) -> None:
        leader = self.nodes[self.leader]
        self.now_ms += 300
        match action:
            case "append":
                self.count += 1
                self.under_way += leader.append(f"{self.count} ", self.now_ms)
            case "fetch" if who != self.leader:
                self.under_way += self.nodes[who].fetch_from(leader, self.now_ms, max_records=2)
            case "stall":
                # The leader notices that whoever is behind has been so for too long.
                self.now_ms += 1000
                assert leader.leader is not None
                self.under_way += leader.carry_out(leader.leader.handle(Ticked(self.now_ms)))
            case "control" if self.under_way:
                self.control(self.under_way.pop(0), tell=who != 0)
            case "metadata":
                assert leader.leader is not None
                leader.leader.handle(
                    PartitionChanged(
                        self.partition_epoch,
                        REPLICAS,
                        frozenset(self.isr),
                        leader.leader.min_insync_replicas,
                        self.now_ms,
                    )
                )
            case "elect":
                self.leader = sorted(self.isr)[who % len(self.isr)]
                self.leader_epoch += 1
                self.partition_epoch += 1
                self._publish_election()
        self.check()

    def control(self, proposal: ProposeIsr, *, tell: bool) -> None:
        """Commit a proposal that is not stale; `tell` whether the answer arrives."""
        error_code = ErrorCode.none
        if proposal.leader_epoch != self.leader_epoch:
            error_code = ErrorCode.fenced_leader_epoch
        elif proposal.partition_epoch != self.partition_epoch:
            error_code = ErrorCode.invalid_update_version
        else:
            self.isr = {broker_id for broker_id, _ in proposal.new_isr}
            self.partition_epoch += 1
        leader = self.nodes[self.leader]
        assert leader.leader is not None
        answer = IsrProposalAnswered(
            proposal,
            error_code if tell else ErrorCode.network_exception,
            frozenset(self.isr),
            self.leader_epoch,
            self.partition_epoch,
            self.now_ms,
        )
        self.under_way += leader.carry_out(leader.leader.handle(answer))

    def check(self) -> None:
        leader = self.nodes[self.leader]
        machine = leader.leader
        assert machine is not None
        # The machine's own view never moves back within its leadership, and what was ever committed by
        # any leader stays where it was.
        committed = leader.log.records[: machine.high_watermark]
        shorter = min(len(committed), len(self.acknowledged))
        assert committed[:shorter] == self.acknowledged[:shorter], "a committed record changed"
        if len(committed) > len(self.acknowledged):
            self.acknowledged = committed
        for broker_id in self.isr:
            held = self.nodes[broker_id].log.records[: len(self.acknowledged)]
            assert held == self.acknowledged, f"broker {broker_id} is in the ISR without what is committed"
        for one in self.nodes:
            for other in self.nodes:
                agreed = min(one.high_watermark, other.high_watermark)
                assert one.log.records[:agreed] == other.log.records[:agreed]


ACTIONS = st.sampled_from(
    ["append", "append", "fetch", "fetch", "fetch", "stall", "control", "control", "metadata", "elect"]
)


@examples(80)
@given(st.lists(st.tuples(ACTIONS, st.sampled_from(REPLICAS)), min_size=20, max_size=100))
def test_any_story_with_clean_elections_loses_nothing_that_was_committed(
    steps: list[tuple[str, int]],
) -> None:
    """Whatever order appends, fetches, lags, ISR changes, lost answers and elections come in."""
    story = Story()
    for action, who in steps:
        story.step(action, who)
