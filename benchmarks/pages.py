"""The tables of figures in the pages, made of the file of results: `python -m benchmarks.pages`.

A table stands between two comments that name it, and is a function of the results alone. A table of which no
case has a result is left as it is, and a case without one has no row. A figure that misses its bar stays, and
its row says so.
"""

import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.case import BASELINE
from benchmarks.results import PUBLISHED, ROOT, CaseResult, Measurement, Origin, read_results

PAGES: Final = tuple(
    ROOT / name for name in ("README.md", "docs/benchmarks.md", "docs/operations.md", "docs/streaming.md")
)
TABLES: Final[Mapping[str, Sequence[str]]] = {
    "rates": (
        *("produce-1000", "produce-100", "produce-1000-zstd", "produce-100-zstd"),
        *("consume-1000", "consume-100", "latency", "idempotent", "transactions-copy"),
        *("transactions-single", "groups-commit", "idle"),
    ),
    "dataframes": tuple(f"dataframe-{way}-{size}" for size in (100, 1000) for way in ("read", "write")),
    "failover": ("failover",),
    "streams": (
        *("dataframe-stream-100", "dataframe-stream-1000"),
        *("query-small-batch", "query-noticed", "query-idle"),
    ),
    "sinks": ("sink-stream-100", "sink-stream-1000", "sink-small-batch", "sink-batch-atomic"),
    "cleaning": ("cleaning-100", "cleaning-100-zstd", "cleaning-1000", "cleaning-1000-zstd"),
}
"""The cases of each table, by the table's name."""
FIRST_PAGE: Final = (
    ("longest pause of a partition whose broker is killed, ms", "failover", 0),
    ("rows of 100 bytes that a DataFrame reads a second", "dataframe-read-100", 0),
    ("memory of three brokers that have served all of the benchmarks, MiB", "idle", 1),
    ("memory of everything that must run, driver and executors included, MiB", "idle", -1),
)
"""The rows of the table "first page": the label, the case, and which of its figures."""
HEADER: Final = (
    f"| case | sparklog | lowest to highest | {BASELINE}, connector | lowest to highest "
    "| ratio | bar | rounds |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|\n"
)
_BAR: Final = re.compile(r"(ours )?(<=|>=) ([\d.]+)")


def with_tables(page: str, results: Mapping[str, CaseResult]) -> str:
    """Return a page with the tables that the results have."""
    for name, table in tables(results).items():
        begin, end = (f"<!-- figures of `make bench`, {name}: {edge} -->" for edge in ("begin", "end"))
        between = re.compile(f"(?<={re.escape(begin)}\n).*(?={re.escape(end)})", re.DOTALL)
        page = between.sub(lambda _, table=table: table, page)  # type: ignore[misc]
    return page


def tables(results: Mapping[str, CaseResult]) -> Mapping[str, str]:
    """Return the tables of which at least one case has a result, by their names."""
    made = {}
    for name, cases in TABLES.items():
        found = [results[case] for case in cases if case in results]
        if found:
            made[name] = HEADER + "".join(map(rows, found)) + _origins(found)
    cells = [
        (label, results[case], results[case].measurements[place])
        for label, case, place in FIRST_PAGE
        if case in results and results[case].measurements
    ]
    if cells:
        lines = "".join(
            f"| {label} | {_median(measured.ours)} | {_median(measured.theirs)} |\n"
            for label, _, measured in cells
        )
        made["first page"] = f"| | sparklog | {BASELINE}, connector |\n|---|---:|---:|\n{lines}" + _origins(
            [result for _, result, _ in cells]
        )
    return made


def rows(result: CaseResult) -> str:
    """Return a case's rows: one for each figure, or for the case if it has none."""
    if not result.measurements:
        return f"| {result.case} |  |  |  |  |  |  | {_cell(result.remark)} |\n"
    return "".join(_row(measurement, result.remark) for measurement in result.measurements)


def ratio(measurement: Measurement) -> float | None:
    """Return the median of the rounds' ratios; None if there is none."""
    if not measurement.has_ratio or not measurement.theirs or 0 in measurement.theirs:
        return None
    return statistics.median(
        our / their for our, their in zip(measurement.ours, measurement.theirs, strict=True)
    )


def misses_bar(measurement: Measurement) -> bool:
    """Say whether the figure is on the wrong side of its bar: a bar of ours, or of the ratio."""
    bar = _BAR.fullmatch(measurement.bar)
    value = statistics.median(measurement.ours) if bar is not None and bar[1] else ratio(measurement)
    if bar is None or value is None:
        return False
    return value > float(bar[3]) if bar[2] == "<=" else value < float(bar[3])


def _row(measurement: Measurement, remark: str) -> str:
    of_both = ratio(measurement)
    cells = [
        f"{measurement.name}, {measurement.unit}",
        *(_median(measurement.ours), _spread(measurement.ours)),
        *(_median(measurement.theirs), _spread(measurement.theirs)),
        "" if of_both is None else f"{of_both:.3f}" if of_both < 0.1 else f"{of_both:.2f}",
        measurement.bar + (" **missed**" if misses_bar(measurement) else ""),
        _cell(remark),
    ]
    return f"| {' | '.join(cells)} |\n"


def _median(values: Sequence[float]) -> str:
    return "" if not values else _written(statistics.median(values), values)


def _spread(values: Sequence[float]) -> str:
    return "" if len(values) < 2 else f"{_written(min(values), values)} to {_written(max(values), values)}"


def _written(value: float, among: Iterable[float]) -> str:
    """Return a figure with as many digits as its size needs: a bar of 0.95 is not 1.0."""
    largest = max(map(abs, among))
    return f"{value:,.{0 if largest >= 100 else 1 if largest >= 10 else 2}f}"


def _cell(text: str) -> str:
    """Return text without the signs that would end its cell or its row."""
    return " ".join(text.replace("|", "/").split())


def _origins(results: Sequence[CaseResult]) -> str:
    """Return the line that names commit, day and machine, or one for each of several."""
    cases: dict[Origin, list[str]] = {}
    for result in dict.fromkeys(results):  # a case may have two rows
        cases.setdefault(result.origin, []).append(result.case)
    lines = (
        f"{', '.join(some) + ': ' if len(cases) > 1 else ''}"
        f"commit {origin.commit}, {origin.date}, {origin.machine}."
        for origin, some in cases.items()
    )
    return (
        "\n"
        + "\n".join(line[0].upper() + line[1:] if len(cases) == 1 else f"- {line}" for line in lines)
        + "\n"
    )


def write_pages(results: Mapping[str, CaseResult], pages: Iterable[Path] = PAGES) -> None:
    """Write the tables into the pages."""
    for path in pages:
        page = path.read_text()
        if (written := with_tables(page, results)) != page:
            path.write_text(written)


def main() -> int:
    """Write the tables of the published results."""
    write_pages(read_results(PUBLISHED))
    return 0


if __name__ == "__main__":
    sys.exit(main())
