"""What was seen survives the run that saw it, and is told with the figures that it gave."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from xml.etree import ElementTree

from tests.chaos.ledger import Verdict
from tests.chaos.observations import RANDOM, REPEATED, Notebook, Observation, Session
from tests.chaos.picture import Mark, Timeline, draw
from tests.chaos.report import report


def observation(gap_s: float, *, fault: str = "worker", mode: str = REPEATED) -> Observation:
    """Return what a fault cost that left its broker's partitions alone for `gap_s`."""
    return Observation("first", mode, fault, "SIGKILL of a broker: 1", gap_s, 0.05, 4.0, 3.0)


def session(lost: int) -> Session:
    """Return the verdict on the run of these observations."""
    verdict = Verdict(1_200, lost, 0, 0, 0, 0, examples=("partition 3: record 7 is lost",) * lost)
    return Session("first", REPEATED, 17, ("worker", "worker"), 60.0, verdict, complaints=())


def test_notebook_gives_back_what_was_noted_in_an_earlier_run(tmp_path: Path) -> None:
    """Fifty kills take a while; an interrupted run goes on where it was."""
    path = tmp_path / "runs" / "observations.jsonl"
    for entry in (observation(0.2), session(lost=1)):
        Notebook(path).add(entry)
    Notebook(path).add(observation(0.4, fault="freeze", mode=RANDOM))
    assert Notebook(path).observations() == [observation(0.2), observation(0.4, fault="freeze", mode=RANDOM)]
    assert Notebook(path).sessions() == [session(lost=1)]
    assert Notebook(tmp_path / "none").observations() == []


def test_report_gives_the_figures_of_each_fault_and_names_what_was_not_kept(tmp_path: Path) -> None:
    """The table is what the promise is held against, so a bound that is missed must show."""
    notebook = Notebook(tmp_path / "observations.jsonl")
    for gap_s in (0.1, 0.2, 0.7):
        notebook.add(observation(gap_s))
    notebook.add(observation(2.0, fault="two-brokers", mode=RANDOM))
    notebook.add(session(lost=1))
    lines = report(notebook).splitlines()
    assert (
        "| SIGKILL of a broker's worker | 3 | 0.20 s | 0.70 s | 0.70 s | 0.5 s **missed** "
        "| 3.0 s | 3.0 s | 1 | 0 |"
    ) in lines
    assert "| SIGKILL of two brokers, one after the other | 1 | 2.00 s | 2.00 s | 2.00 s |" in report(
        notebook
    )
    assert "Run first (seed 17) was not clean: partition 3: record 7 is lost" in lines


def test_timeline_counts_acknowledgements_and_finds_silence_of_single_partitions() -> None:
    """A partition that stands still beside five that do not is what the picture is for."""
    acknowledged_s = [array("d", [100.05, 100.15, 101.15]), array("d", [100.05, 100.25, 100.45])]
    marks = [Mark(0.2, 0.3, "worker")]
    timeline = Timeline.of(acknowledged_s, 100.0, marks)
    assert timeline.counts[:5] == (2, 1, 1, 0, 1)
    assert [(partition, round(end - begin, 6)) for partition, begin, end in timeline.silences] == [(0, 1.0)]
    assert timeline.marks == tuple(marks)
    picture = ElementTree.fromstring(draw(timeline, "worker & executor"))
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["worker & executor", "silent for 1.00 s", "worker"]


def test_timeline_of_a_run_without_an_acknowledgement_can_be_drawn() -> None:
    """A run that fails at once must still say so, and not with an error of its picture."""
    timeline = Timeline.of([array("d")] * 2, 100.0, [])
    assert ElementTree.fromstring(draw(timeline, "nothing")).tag.endswith("svg")


def test_timeline_is_kept_as_json(tmp_path: Path) -> None:
    """The picture can be drawn anew without another run."""
    timeline = Timeline.of([array("d", [1.0, 2.0])], 0.0, [Mark(1.1, 1.2, "worker")])
    timeline.save(tmp_path / "timeline.json")
    kept = json.loads((tmp_path / "timeline.json").read_text())
    assert kept["marks"] == [{"began_s": 1.1, "over_s": 1.2, "fault": "worker"}]
    assert sum(kept["counts"]) == 2
