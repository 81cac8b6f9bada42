"""The tables of the pages are a function of the file of results."""

import pytest

from benchmarks.pages import PAGES, TABLES, misses_bar, ratio, rows, tables, with_tables
from benchmarks.results import PUBLISHED, CaseResult, Measurement, Origin, read_results

MONDAY = Origin("abc1234567", "2 cores of a processor, 4 GiB", "2026-01-05")
TUESDAY = Origin("def1234567", "2 cores of a processor, 4 GiB", "2026-01-06")
RATE = Measurement("produce", "/s", ">= 1.6", (60_000, 72_000, 63_000), (50_000, 45_000, 42_000))
PAUSE = Measurement("pause", "ms", "", (139.4, 171.2), (12_516.0, 15_204.0))
RESULTS = {
    "produce-1000": CaseResult("produce-1000", MONDAY, "3 of 7", (RATE,)),
    "latency": CaseResult("latency", TUESDAY, "failed: RuntimeError: EndToEndLatency said:\n|x|", ()),
    "failover": CaseResult("failover", MONDAY, "2 of 2, cut after 270 s", (PAUSE,)),
}
HEADER = """\
| case | sparklog | lowest to highest | Apache Kafka, connector | lowest to highest | ratio | bar | rounds |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
RATES = f"""\
{HEADER}\
| produce, /s | 63,000 | 60,000 to 72,000 | 45,000 | 42,000 to 50,000 | 1.50 | >= 1.6 **missed** | 3 of 7 |
| latency |  |  |  |  |  |  | failed: RuntimeError: EndToEndLatency said: /x/ |

- produce-1000: commit abc1234567, 2026-01-05, 2 cores of a processor, 4 GiB.
- latency: commit def1234567, 2026-01-06, 2 cores of a processor, 4 GiB.
"""
FAILOVER = f"""\
{HEADER}\
| pause, ms | 155 | 139 to 171 | 13,860 | 12,516 to 15,204 | 0.011 |  | 2 of 2, cut after 270 s |

Commit abc1234567, 2026-01-05, 2 cores of a processor, 4 GiB.
"""
FIRST_PAGE = """\
| | sparklog | Apache Kafka, connector |
|---|---:|---:|
| longest pause of a partition whose broker is killed, ms | 155 | 13,860 |

Commit abc1234567, 2026-01-05, 2 cores of a processor, 4 GiB.
"""


def between(name: str, table: str) -> str:
    """Return a table between its comments."""
    begin, end = (f"<!-- figures of `make bench`, {name}: {edge} -->" for edge in ("begin", "end"))
    return f"{begin}\n{table}{end}"


def test_tables_have_a_row_a_figure_and_name_where_each_was_measured() -> None:
    """A case that failed, was cut or misses its bar says so in its row."""
    assert tables(RESULTS) == {"rates": RATES, "failover": FAILOVER, "first page": FIRST_PAGE}


def test_page_has_its_tables_replaced_and_nothing_else() -> None:
    """A table of which nothing was measured stays."""
    page = f"# Figures\n{between('rates', 'old')}\nText\\1.\n{between('cleaning', 'older')}\nEnd\n"
    expected = page.replace("old<", f"{RATES}<")
    assert with_tables(page, RESULTS) == expected
    assert with_tables(expected, RESULTS) == expected


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    """A machine that drifts drifts for both sides of a round."""
    assert ratio(Measurement("m", "s", "", (1, 4, 9), (2, 4, 3))) == 1
    assert ratio(Measurement("m", "s", "", (1,), ())) is None
    assert ratio(Measurement("m", "ms", "", (1,), (0,))) is None
    assert ratio(Measurement("a difference", "ms", "", (1,), (2,), has_ratio=False)) is None


@pytest.mark.parametrize(
    ("bar", "ours", "theirs", "missed"),
    [
        (">= 1.6", 160, 100, False),
        (">= 1.6", 159, 100, True),
        ("<= 0.4", 41, 100, True),
        ("<= 0.4", 41, None, False),
        ("ours <= 40", 41, 100, True),
        ("ours >= 0.97", 0.98, None, False),
        ("", 1, 100, False),
    ],
)
def test_bar_is_of_the_ratio_or_of_ours(bar: str, ours: float, theirs: float | None, missed: bool) -> None:
    """A bar of the ratio says nothing without a baseline."""
    measurement = Measurement("m", "s", bar, (ours,), () if theirs is None else (theirs,))
    assert misses_bar(measurement) is missed


def test_rows_figure_of_one_side_leaves_the_other_side_blank() -> None:
    """Apache Kafka's brokers have no executors around them."""
    result = CaseResult("idle", MONDAY, "1 of 1", (Measurement("JVMs", "MiB", "", (868.2,), ()),))
    assert rows(result) == "| JVMs, MiB | 868 |  |  |  |  |  | 1 of 1 |\n"


def test_first_page_case_with_two_rows_is_named_once() -> None:
    """Its memory is that of brokers, and that of everything."""
    resident = tuple(Measurement(name, "MiB", "", (300,), (900,)) for name in ("CPU", "brokers", "all"))
    page = tables({**RESULTS, "idle": CaseResult("idle", TUESDAY, "1 of 1", resident)})["first page"]
    assert page.count("| 300 | 900 |") == 2
    assert "\n- idle: commit def1234567" in page


def test_pages_hold_the_tables_of_the_published_results() -> None:
    """A table that is written by hand, or not written again, shows figures that were never measured."""
    results = read_results(PUBLISHED)
    for path in PAGES:
        page = path.read_text()
        assert with_tables(page, results) == page, f"run python -m benchmarks.pages: {path.name} is older"


def test_every_table_is_in_one_page() -> None:
    """A table without its comments would be written nowhere."""
    pages = "".join(path.read_text() for path in PAGES)
    for name in (*TABLES, "first page"):
        assert pages.count(f"<!-- figures of `make bench`, {name}: begin -->") == 1
        assert pages.count(f"<!-- figures of `make bench`, {name}: end -->") == 1
