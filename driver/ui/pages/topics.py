"""The list of all topics, a page at a time."""

from sparklog.driver.ui.machine.status import TopicSummary
from sparklog.driver.ui.machine.topic_health import TopicHealth
from sparklog.driver.ui.pages.html import Html, element, joined, link_to, log_page
from sparklog.driver.ui.pages.sections.topics import topics_table
from sparklog.driver.ui.pages.tables import PAGE_ROWS, pages_of, paging


def topics_page(health: TopicHealth, page: int) -> tuple[Html, tuple[TopicSummary, ...]]:
    """Return page number `page` of the topics, or the nearest one, and its topics."""
    pages = pages_of(len(health.names))
    page = min(max(1, page), pages)
    steps = paging(lambda number: log_page("topics", page=number), page, pages)
    topics = health.summaries((page - 1) * PAGE_ROWS, PAGE_ROWS)
    overview = element("p", link_to(log_page(), "Overview"))
    return joined([overview, steps, topics_table(topics), steps]), topics
