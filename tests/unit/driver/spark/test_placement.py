"""Which hosts brokers prefer: those of their directories, and for each rack others."""

from collections import Counter
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.spark.directory_search import homes_of, ids_per_rack_of
from sparklog.driver.spark.placement import HOME_WAIT_S, NEW_EXECUTORS_WAIT_S, Placement, preferred_hosts
from sparklog.driver.spark.slots import BrokerSlots
from sparklog.node.storage.directory.directory_search import FoundDirectories
from tests.unit.driver.spark.java_virtual_machine import context_of

RACKS = {0: "rack-0", 1: "rack-1", 2: "rack-2"}
PAIRS = {0: "rack-0", 1: "rack-0", 2: "rack-1", 3: "rack-1"}


def preferred(
    homes: dict[int, list[str]], hosts: str, racks: dict[int, str] | None = None
) -> list[list[str]]:
    """Return what every broker prefers of hosts that are named by a letter each."""
    racks = racks or RACKS
    return [preferred_hosts(node_id, racks, homes, Counter(hosts)) for node_id in racks]


@pytest.mark.parametrize(
    ("homes", "hosts", "expected"),
    [
        pytest.param({}, "a", [[], [], []], id="one host"),
        pytest.param({}, "abc", [["a"], ["b"], ["c"]], id="as many hosts as racks"),
        pytest.param({}, "ab", [["a"], ["b"], []], id="fewer hosts than racks"),
        pytest.param({0: ["c"], 1: ["a"], 2: ["b"]}, "abc", [["c"], ["a"], ["b"]], id="all at home"),
        pytest.param({1: ["a"]}, "abc", [["b"], ["a"], ["c"]], id="one at home"),
        pytest.param({0: ["gone"]}, "abc", [["a"], ["b"], ["c"]], id="a home without executors"),
        pytest.param({0: ["gone"], 1: ["b"], 2: ["c"]}, "bcde", [["d", "e"], ["b"], ["c"]], id="spare hosts"),
        pytest.param(
            {node_id: list("abc") for node_id in RACKS}, "abc", [["a"], ["b"], ["c"]], id="one storage"
        ),
    ],
)
def test_brokers_prefer_their_homes_and_the_others_hosts_that_are_nobodys(
    homes: dict[int, list[str]], hosts: str, expected: list[list[str]]
) -> None:
    """A host that is lost takes one replica of a partition with it."""
    assert preferred(homes, hosts) == expected


def test_broker_for_which_no_host_is_left_prefers_those_with_more_executors_than_brokers() -> None:
    """It would else take the place of one that is at home there, and both would begin empty."""
    racks = RACKS | {3: "rack-3"}
    homes = {0: ["a"], 1: ["b"], 2: ["c"]}
    assert preferred(homes, "abcc", racks) == [["a"], ["b"], ["c"], ["c"]]
    assert preferred(homes, "abc", racks)[3] == []


def test_brokers_of_one_rack_share_its_hosts() -> None:
    """A rack fails as a whole: two of its brokers on one host are no loss."""
    assert preferred({}, "abcd", PAIRS) == [["a", "c"], ["a", "c"], ["b", "d"], ["b", "d"]]
    assert preferred({0: ["b"]}, "ab", PAIRS) == [["b"], ["a", "b"], ["a"], ["a"]]


@given(
    st.dictionaries(st.sampled_from(sorted(RACKS)), st.lists(st.sampled_from("abcdef"), max_size=2)),
    st.sets(st.sampled_from("abcdef"), max_size=5),
)
def test_nobody_prefers_a_host_without_executors_or_another_ones_home(
    homes: dict[int, list[str]], hosts: set[str]
) -> None:
    """Whatever was found: Spark would wait for the one, and the other's directories lie idle."""
    chosen = {node_id: set(preferred_hosts(node_id, RACKS, homes, Counter(hosts))) for node_id in RACKS}
    assert all(there <= hosts for there in chosen.values())
    for node_id in RACKS:
        at_home = set(homes.get(node_id, ())) & hosts
        if at_home and at_home != hosts:
            assert chosen[node_id] == at_home
            others = [other for other in RACKS if not set(homes.get(other, ())) & hosts]
            assert not any(chosen[other] & at_home for other in others)


def test_home_of_a_broker_that_moved_is_the_host_with_its_latest_directories() -> None:
    """What it left behind on another disk is older, whatever task found it first."""
    changed = {"a": {7: 5.0, 8: 2.0}, "b": {7: 9.0}, "c": {7: 6.0, 8: 2.0}}
    found = {
        host: {broker_id: FoundDirectories(changed_s, 1) for broker_id, changed_s in there.items()}
        for host, there in changed.items()
    }
    expected = {7: {"b"}, 8: {"a", "c"}}
    assert homes_of(found) == expected
    assert homes_of(dict(reversed(found.items()))) == expected


def test_directories_of_another_cluster_say_nothing_about_the_ids_of_this_one() -> None:
    """An application may have left a few on the same hosts, with another number of brokers a rack."""
    ours, others = FoundDirectories(1.0, None, "A"), FoundDirectories(2.0, 1, "B")
    found = [{0: ours, 1: ours, 1000: others}, {2: ours, 3: ours, 1: others}]
    assert ids_per_rack_of(found) == dict.fromkeys(range(4))


class Executors:
    """An application whose executors, one slot each, are on these hosts; racks are of one broker."""

    def __init__(self, *hosts: str, racks: dict[int, str] = RACKS, in_local_mode: bool = False) -> None:
        self.hosts = list(hosts)
        self.starting = 0
        """How many Spark counts, and gives no tasks yet."""
        context = context_of(None)
        java_context = context._jsc.sc()
        java_context.maxNumConcurrentTasks.side_effect = lambda _: len(self.hosts) + self.starting
        registered = java_context.schedulerBackend().getExecutorIds().size
        registered.side_effect = lambda: len(self.hosts) + self.starting
        java_context.statusTracker().getExecutorInfos.side_effect = self._infos
        java_context.taskScheduler().getExecutorsAliveOnHost.side_effect = self._alive
        profile: Any = None if in_local_mode else context.profile
        slots = BrokerSlots(context, profile, cores_per_broker=1, takes_resource=False)
        brokers: dict[str, list[int]] = {}
        for node_id, rack in racks.items():
            brokers.setdefault(rack, []).append(node_id)
        self.placement = Placement(slots, brokers, {rack: rack for rack in brokers})

    def _infos(self) -> list[MagicMock]:
        return [MagicMock(**{"host.return_value": host}) for host in self.hosts]

    def _alive(self, host: str) -> MagicMock:
        count = self.hosts.count(host)
        return MagicMock(**{"isDefined.return_value": count > 0, "get.return_value.size.return_value": count})


def test_racks_with_an_executor_less_than_they_need_let_one_rack_wait() -> None:
    """Spark counts slots that are taken too; a rack that trusted it would wait inside Spark, unseen."""
    executors = Executors("a", "b")
    placement = executors.placement
    assert [placement.take_slots(rack, 0) for rack in RACKS.values()] == [True, True, False]
    placement.give_back("rack-0", has_served=False)
    assert placement.take_slots("rack-2", 0)
    assert not placement.take_slots("rack-0", 0)


def test_broker_prefers_the_hosts_of_its_rack_and_its_home_before_them() -> None:
    """A rack that is a zone has its replicas there; a disk is nearer than a zone."""
    placement = Executors("a", "b", "c", "d", "e").placement
    placement.set_hosts_of_racks({"rack-0": frozenset("bx"), "rack-1": frozenset("ac")})
    assert placement.preferred("rack-0") == [["b"]]
    assert placement.preferred("rack-1") == [["a", "c"]]
    assert placement.preferred("rack-2") == [["d", "e"]]
    placement.set_homes({1: ["d"]})
    assert placement.preferred("rack-1") == [["d"]]
    placement.forget_homes("rack-1")
    assert placement.preferred("rack-1") == [["a", "c"]]


def test_rack_without_an_executor_on_its_hosts_takes_another_at_once() -> None:
    """The hosts of a rack are a preference; a broker elsewhere is worth more than none."""
    placement = Executors("c").placement
    placement.set_hosts_of_racks({"rack-0": frozenset("b")})
    assert placement.take_slots("rack-0", 0)


def test_rack_of_an_application_in_local_mode_does_not_wait_for_its_home() -> None:
    """In local mode Spark names no host: a broker that had served came back five seconds late."""
    executors = Executors(in_local_mode=True)
    placement = executors.placement
    executors.starting = 3
    placement.set_homes({0: ["localhost"]})
    assert placement.take_slots("rack-0", 0)


def test_slots_are_for_all_brokers_of_a_rack_or_none() -> None:
    """A barrier job starts with all its tasks; half a rack's slots help nobody, and two racks could share."""
    placement = Executors("a", "b", "c", racks=PAIRS).placement
    assert placement.take_slots("rack-0", 0)
    assert not placement.take_slots("rack-1", 0)
    placement.give_back("rack-0", has_served=False)
    assert placement.take_slots("rack-1", 0)


def test_rack_whose_home_stays_away_takes_no_slot_at_the_home_of_another_that_waits() -> None:
    """Each would begin empty where the other's directories are."""
    executors = Executors("a")
    placement = executors.placement
    placement.set_homes({0: ["a"], 1: ["b"], 2: ["c"]})
    assert placement.take_slots("rack-0", 0)
    executors.starting = 1
    assert not placement.take_slots("rack-1", HOME_WAIT_S), "nobody knows yet whose it is"
    executors.starting = 0
    executors.hosts.append("c")
    assert not placement.take_slots("rack-1", HOME_WAIT_S)
    assert placement.take_slots("rack-2", 0)
    executors.hosts.append("d")
    assert not placement.take_slots("rack-1", HOME_WAIT_S - 1)
    assert placement.take_slots("rack-1", HOME_WAIT_S)


def test_racks_that_are_at_home_on_the_same_host_do_not_wait_for_each_other() -> None:
    """On one host, with an executor less than brokers, each slot is at the home of all of them."""
    executors = Executors("a", "a", "a")
    placement = executors.placement
    placement.set_homes({0: ["a"], 1: ["a"], 2: ["a"]})
    assert all(placement.take_slots(rack, 0) for rack in RACKS.values())
    for rack in ("rack-1", "rack-0"):
        placement.give_back(rack, has_served=False)
    executors.hosts.remove("a")
    assert [placement.take_slots(rack, 0) for rack in ("rack-1", "rack-0", "rack-1")] == [False, True, False]
    executors.hosts.append("a")
    assert placement.take_slots("rack-1", 0)


def test_racks_that_each_lost_one_of_their_hosts_do_not_wait_for_each_other() -> None:
    """The slots that are left suffice for one of them, beside a broker's home of the other."""
    executors = Executors("b", "d", racks=PAIRS)
    placement = executors.placement
    placement.set_homes({0: ["a"], 1: ["b"], 2: ["c"], 3: ["d"]})
    assert not placement.take_slots("rack-0", HOME_WAIT_S - 1), "a host may come back"
    assert not placement.take_slots("rack-1", HOME_WAIT_S)
    assert placement.take_slots("rack-0", HOME_WAIT_S)
    executors.hosts += ["c", "e"]
    assert placement.take_slots("rack-1", 0)


def test_rack_that_has_too_few_slots_for_long_keeps_none_from_another() -> None:
    """A slot at the home of one of its brokers is of no use to it without a second one."""
    executors = Executors("b", racks={0: "rack-0", 1: "rack-0", 2: "rack-1"})
    placement = executors.placement
    placement.set_homes({0: ["a"], 1: ["b"], 2: ["c"]})
    assert not placement.take_slots("rack-0", NEW_EXECUTORS_WAIT_S)
    assert not placement.take_slots("rack-1", NEW_EXECUTORS_WAIT_S - 1), "a second executor may come"
    assert placement.take_slots("rack-1", NEW_EXECUTORS_WAIT_S)


def test_rack_is_not_waited_for_once_it_has_ended_or_has_to_leave_its_host() -> None:
    """What nobody will take is free, and a host that Spark takes away does not come back."""
    executors = Executors("a", "c")
    placement = executors.placement
    placement.set_homes({0: ["a"], 1: ["b"], 2: ["c"]})
    assert placement.take_slots("rack-0", 0)
    placement.ended("rack-2")
    assert placement.take_slots("rack-1", HOME_WAIT_S)
    placement.leave_hosts("rack-0")
    placement.give_back("rack-0", has_served=True)
    executors.hosts[:] = ["c", "d"]
    assert placement.take_slots("rack-0", 0)
