"""A plugin of pytest that names the tests which compute most: `python -m pytest -p tests.computing_time ...`.

What a test computes is the processor time of its process, and of all below it that run or were waited for,
from the beginning of its fixtures to their end. A fixture that tests share counts for the first of them.
"""

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

SHOWN: Final = 20
PROPERTY: Final = "computing_s"
TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_began: Final[dict[str, float]] = {}
_computed: Final[dict[str, float]] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note what was computed before the test."""
    _began[item.nodeid] = computed_s(os.getpid())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the report of a test's end say what it has computed."""
    report = yield
    if call.when == "teardown" and item.nodeid in _began:
        report.user_properties.append((PROPERTY, computed_s(os.getpid()) - _began.pop(item.nodeid)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what reports say, those of other processes too."""
    for name, value in report.user_properties:
        if name == PROPERTY and isinstance(value, float):
            _computed[report.nodeid] = value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the tests, and what each folder computes."""
    folders: dict[str, float] = defaultdict(float)
    for nodeid, seconds in _computed.items():
        folders[str(Path(*Path(nodeid.partition("::")[0]).parts[:2]))] += seconds
    terminalreporter.section("seconds of computing")
    for nodeid, seconds in sorted(_computed.items(), key=lambda each: -each[1])[:SHOWN]:
        terminalreporter.line(f"{seconds:8.1f}  {nodeid}")
    for folder, seconds in sorted(folders.items(), key=lambda each: -each[1]):
        terminalreporter.line(f"{seconds:8.1f}  all of {folder}")


def computed_s(process: int) -> float:
    """Return the processor time of a process and of all below it, those that were waited for included."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
            ticks[int(entry.name)] = sum(map(int, fields[11:15]))  # own and children's, user and system
            children[int(fields[1])].append(int(entry.name))
    found, left = 0, [process]
    while left:
        each = left.pop()
        found += ticks.get(each, 0)
        left += children[each]
    return found / TICKS_A_SECOND
