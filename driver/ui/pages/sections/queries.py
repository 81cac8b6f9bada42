"""Streaming queries of this application, with their lag."""

from sparklog.driver.ui.machine.status import QueryStatus, SourceStatus
from sparklog.driver.ui.pages.html import Content, Html, Link, element, link_to
from sparklog.driver.ui.pages.number_formats import count, duration, rate
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import Cell, plain, right, section, table

_COLUMNS = ("Query", "State", "Batch", "Batch time", "Reads", "Lag", "Rows in", "Rows done", "Writes")


def _shows(shown: Shown) -> tuple[QueryStatus, ...]:
    return shown.status.queries


def _render(queries: tuple[QueryStatus, ...]) -> Html | None:
    rows = [row for query in queries for row in _rows(query)]
    return section("Streaming queries", table(_COLUMNS, rows, empty=""), id_="sl-queries") if rows else None


def _rows(query: QueryStatus) -> list[list[Cell]]:
    """Return a line a source, with the query's own values in the first."""
    page = Link(f"/StreamingQuery/statistics/?id={query.run_id}")
    own = [
        plain(link_to(page, query.name or query.run_id)),
        plain(_state(query)),
        right(element("span", count(query.batch_id), title=query.timestamp)),
        right(duration(query.batch_duration_ms)),
    ]
    nothing = SourceStatus(description="", lag=None, input_rows_per_s=None, processed_rows_per_s=None)
    rows = []
    for number, source in enumerate(query.sources or (nothing,)):
        rows.append(
            [
                *(own if number == 0 else [plain(None)] * len(own)),
                plain(source.description),
                right(count(source.lag)),
                right(rate(source.input_rows_per_s)),
                right(rate(source.processed_rows_per_s)),
                plain(query.sink if number == 0 else None),
            ]
        )
    return rows


def _state(query: QueryStatus) -> Content:
    if query.failure is None:
        return "running"
    if not query.failure:
        return "stopped"
    return element("span", "failed", title=query.failure, class_="badge text-bg-danger")


QUERIES = Section(_shows, _render)
