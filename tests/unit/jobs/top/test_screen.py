"""The terminal's overview: what needs somebody is there, however many topics there are."""

from dataclasses import replace

from rich.console import Console

from sparklog.driver.ui.machine.groups import GroupSummary
from sparklog.jobs.top.groups import GroupsSeen
from sparklog.jobs.top.observation import BrokerRow, Overview, QuorumRow, TopicRow, Troubled
from sparklog.jobs.top.screen import screen
from sparklog.jobs.top.tier_figures import TopicTier

BROKER = BrokerRow(0, "10.0.0.1:9092", "rack-0", False, 4, 12, 11, 1_234.0, 3 << 30, 90 << 30, 0)
GROUPS = tuple(
    GroupSummary(
        group_id=f"[red]group-{number}",
        group_type="classic",
        state="Empty",
        protocol_type="consumer",
        assignor=None,
        coordinator=2,
        members=None,
        partitions=6,
        lag=12_345,
    )
    for number in range(50)
)
OVERVIEW = Overview(
    cluster_id="AAAAAAAAAAAAAAAAAAAAAA",
    controller_id=1_000_000,
    leader_epoch=3,
    voters=(QuorumRow(0, 0), QuorumRow(1, None)),
    brokers=(BROKER, BROKER._replace(node_id=1, is_fenced=True, log_bytes=None, offline_directories=1)),
    topics=tuple(TopicRow(f"topic-{number}", 6, 100, 10.0, 1 << 20) for number in range(1_000)),
    partitions=6_000,
    troubled=(Troubled("topic-7-0", None, (0, 1), ()), Troubled("topic-8-0", 0, (0, 1), (0,))),
    groups=GroupsSeen(0, ()),
)


def shown(overview: Overview, *, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(screen(overview, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_screen_says_what_is_wrong_before_anything_else() -> None:
    """It is opened when something is."""
    lines = shown(OVERVIEW, width=120)
    assert lines[:2] == [
        "Cluster AAAAAAAAAAAAAAAAAAAAAA  controller 1000000  epoch 3  voters' lag: 0 0, 1 –",
        "6,000 partitions of 1,000 topics: 1 offline 1 under-replicated",
    ]
    assert lines[3].split()[:5] == ["0", "in", "service", "rack-0", "10.0.0.1:9092"]
    assert lines[4].split()[:6] == ["1", "fenced,", "1", "disks", "failed", "rack-0"]
    assert lines[6].split() == ["topic-7-0", "–", "0,", "1"]


def test_screen_is_no_taller_than_the_terminal() -> None:
    """What scrolls off at the top is what matters most."""
    assert len(shown(OVERVIEW, width=120, height=24)) <= 24
    assert shown(OVERVIEW, width=120, height=24)[-1].startswith("and 99")


def test_groups_that_are_furthest_behind_are_shown_and_the_others_counted() -> None:
    """Lag is what somebody looks for; the list of topics gives way."""
    lines = shown(OVERVIEW._replace(groups=GroupsSeen(1_234, GROUPS)), width=120, height=40)
    (first,) = (number for number, line in enumerate(lines) if line.startswith("Group "))
    assert lines[first + 1].split() == ["[red]group-0", "Empty", "2", "6", "12,345"]
    assert lines[first + 6] == "and 1,229 more"
    assert len(lines) <= 40


def test_names_with_rich_s_markup_are_text() -> None:
    """A rack may be called anything; its name must neither vanish nor raise."""
    odd = OVERVIEW._replace(brokers=(BROKER._replace(rack="[/bold]"),), topics=(), troubled=())
    assert any("[/bold]" in line for line in shown(odd, width=120))


def test_names_that_a_terminal_would_obey_are_shown_as_what_they_are() -> None:
    """Whoever may commit an offset chooses the name of a group; whoever looks had his screen cleared."""
    odd = replace(GROUPS[0], group_id="a\x1b[2Jb\r\nc")
    lines = shown(OVERVIEW._replace(groups=GroupsSeen(1, (odd,))), width=120, height=40)
    assert any(line.startswith(r"a\x1b[2Jb\r\nc ") for line in lines)
    assert all(line.isprintable() for line in lines)


def test_topics_have_the_figures_of_their_tier_where_metrics_are_looked_at() -> None:
    """Clients cannot ask for them."""
    topics = (
        TopicRow("tiered", 1, 100, 10.0, 1 << 20, 70, TopicTier(5 << 20, 3 << 10, 2.5)),
        TopicRow("local", 1, 5, 0.0, 1 << 20),
    )
    lines = shown(OVERVIEW._replace(topics=topics), width=140)
    (row,) = (line for line in lines if line.startswith("tiered"))
    assert row.split()[-7:] == ["70", "30", "5.0", "MiB", "3.0", "KiB", "2.5/s"]


def test_topics_of_a_tiered_cluster_have_the_lag_of_their_copies() -> None:
    """What is not in the tier is what the loss of all disks would cost."""
    topics = (TopicRow("tiered", 1, 100, 10.0, 1 << 20, 70), TopicRow("local", 1, 5, 0.0, 1 << 20))
    lines = shown(OVERVIEW._replace(topics=topics), width=120)
    (head,) = (line for line in lines if line.startswith("Topic"))
    assert head.split()[-5:] == ["In", "the", "tier", "Not", "yet"]
    (row,) = (line for line in lines if line.startswith("tiered"))
    assert row.split()[-2:] == ["70", "30"]
    assert not any("tier" in line for line in shown(OVERVIEW, width=120))
