"""Notes on brokers' answers in pages: missing, outdated or incomplete ones.

And the page shown in place of one that could not be made.
"""

from typing import Any, Final

from sparklog.driver.ui.pages.html import Html, element
from sparklog.driver.ui.pages.number_formats import duration
from sparklog.driver.ui.questions import MAX_RESPONSE_BYTES, Answer
from sparklog.node.calling.blocking import ResponseTooLargeError

_OLD_MS: Final = 3_000


def lacking(answer: Answer[Any], missing: str | None = None) -> str | None:
    """Return why a value is missing from an answer, or why the answer is old; None if all is well."""
    remarks = [each for each in (_failure(answer), missing) if each is not None]
    if answer.age_ms is None and not remarks:
        return "Brokers are being asked."
    return " ".join(remarks) or None


def said_of(answer: Answer[Any], missing: str | None = None) -> Html | None:
    """Return the note above a page's content; None without one."""
    lacks = lacking(answer, missing)
    remarks = [] if lacks is None else [lacks]
    if answer.age_ms is not None and answer.age_ms > _OLD_MS:
        remarks.append(f"The data below is {duration(answer.age_ms)} old.")
    if not remarks:
        return None
    is_trouble = answer.failure is not None or missing is not None
    return element("p", " ".join(remarks), class_="alert alert-warning" if is_trouble else "text-secondary")


def failed_page(failure: str) -> Html:
    text = f"This page could not be made: {failure}. The driver's log has more, and the other pages go on."
    return element("p", text, class_="alert alert-danger")


def _failure(answer: Answer[Any]) -> str | None:
    if isinstance(answer.failure, ResponseTooLargeError):
        return (
            f"There are more than this page reads, {MAX_RESPONSE_BYTES >> 20} MiB of a broker's answer "
            f"({answer.failure.message}). Kafka's own tools list them."
        )
    return None if answer.failure is None else f"Brokers do not answer: {answer.failure}"
