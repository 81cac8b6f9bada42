"""The first topics, and a link to the others."""

from sparklog.driver.ui.machine.status import TopicSummary
from sparklog.driver.ui.pages.html import Html, element, link_to, log_page
from sparklog.driver.ui.pages.number_formats import count
from sparklog.driver.ui.pages.sections.section import Section, Shown
from sparklog.driver.ui.pages.tables import Cell, plain, right, section, table


def topics_table(topics: tuple[TopicSummary, ...]) -> Html:
    columns = ("Topic", "Partitions", "Replicas", "Offline", "Under min. ISR", "Under-replicated")
    return table(columns, [_row(topic) for topic in topics], empty="There are no topics.")


def _shows(shown: Shown) -> tuple[tuple[TopicSummary, ...], int]:
    return shown.status.topics, shown.status.topic_count


def _render(shows: tuple[tuple[TopicSummary, ...], int]) -> Html:
    topics, topic_count = shows
    more = None
    if topic_count > len(topics):
        more = element("p", link_to(log_page("topics", page=1), f"All {count(topic_count)} topics"))
    return section("Topics", topics_table(topics), more, id_="sl-topics")


def _row(topic: TopicSummary) -> list[Cell]:
    return [
        plain(link_to(log_page("topic", name=topic.name), topic.name)),
        right(count(topic.partitions)),
        right(count(topic.replicas)),
        *(right(count(each)) for each in (topic.offline, topic.under_min_isr, topic.under_replicated)),
    ]


TOPICS = Section(_shows, _render)
