"""Pages of groups: names are text, long lists have pages."""

from sparklog.driver.ui.machine.groups import GroupPartition, GroupStatus, GroupSummary
from sparklog.driver.ui.pages.groups import group_page, groups_page, unknown_group_page
from sparklog.driver.ui.pages.html import UI_ROOT_MARK
from sparklog.protocol.types import TopicPartition
from sparklog.user.client.groups import GroupMember
from tests.unit.driver.ui.pages.statuses import EVIL

LONG = "x" * 30_000
"""As long as a record lets the name of a group be."""


def summary(group_id: str) -> GroupSummary:
    return GroupSummary(
        group_id=group_id,
        group_type="classic",
        state="Empty",
        protocol_type=EVIL,
        assignor=EVIL,
        coordinator=1,
        members=0,
        partitions=2,
        lag=1_234,
    )


def group(partitions: int) -> GroupStatus:
    return GroupStatus(
        group_id=EVIL,
        group_type="consumer",
        state="Reconciling",
        protocol_type="consumer",
        assignor=EVIL,
        coordinator=2,
        group_epoch=5,
        assignment_epoch=4,
        lag=77,
        members=(
            GroupMember(
                member_id=EVIL,
                group_instance_id=EVIL,
                client_id=EVIL,
                client_host=EVIL,
                member_epoch=4,
                subscription=EVIL,
                assignment=tuple(TopicPartition("flights", number) for number in range(partitions)),
            ),
        ),
        partitions=tuple(
            GroupPartition(
                topic="flights",
                partition=number,
                committed_offset=5,
                leader_epoch=1,
                high_watermark=9,
                lag=4,
                metadata=EVIL,
                member_id=EVIL,
            )
            for number in range(partitions)
        ),
    )


def test_markup_in_what_groups_and_members_say_is_text() -> None:
    """Any client chooses its group's name, its client id and the metadata of its offsets."""
    for page in (
        groups_page(None, [summary(EVIL)], 1, 1),
        group_page(None, group(2), 1),
        unknown_group_page(None, EVIL),
    ):
        assert "<img" not in page
        assert "&lt;img" in page


def test_list_of_a_million_groups_has_a_hundred_on_a_page() -> None:
    """And a way to the others."""
    page = groups_page(None, [summary(f"group-{number}") for number in range(100)], 1_000_000, 3)
    assert page.count("<tr>") == 1 + 100
    assert f'href="{UI_ROOT_MARK}/log/groups/?page=10000"' in page
    assert "Groups: 1,000,000;" in page


def test_group_with_a_name_that_no_address_can_hold_is_shown_without_a_link() -> None:
    """A page that can't be opened is worse than none."""
    for name in (LONG, ""):
        page = groups_page(None, [summary(name)], 1, 1)
        assert "/log/group/" not in page
    assert len(groups_page(None, [summary(LONG)], 1, 1)) < 3_000


def test_group_of_many_partitions_has_pages_and_its_members_lines() -> None:
    """A member of a thousand partitions would fill the screen."""
    page = group_page(None, group(250), 3)
    assert page.count("<tr>") == 1 + 50  # the last partitions, and no member on this page
    assert "Members" not in page
    assert "and 230 more" in group_page(None, group(250), 1)
    assert f'href="{UI_ROOT_MARK}/log/group/?name=' in page
