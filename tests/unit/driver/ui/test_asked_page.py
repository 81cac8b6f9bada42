"""Pages are known by what stands in their address, as Java hands it on."""

import pytest

from sparklog.driver.ui.asked_page import OVERVIEW, AskedPage


@pytest.mark.parametrize(
    ("key", "kind", "name", "partition", "page"),
    [
        ("", "", "", None, 1),
        ("topics\n\n\n", "topics", "", None, 1),
        ("topics\n\n\n1", "topics", "", None, 1),
        ("topic\nflights\n\n12", "topic", "flights", None, 12),
        ("topic\nflights\n\nx", "topic", "flights", None, 1),
        ("topic\n%3Cb%3E\n\n-3", "topic", "<b>", None, 1),
        ("group\na%0Ab+c%2Bd\n\n", "group", "a\nb c+d", None, 1),
        ("producers\nflights\n0\n2", "producers", "flights", 0, 2),
        ("producers\nflights\n-1\n2", "producers", "flights", None, 2),
    ],
)
def test_asked_page_is_read_off_its_key_and_keeps_it(
    key: str, kind: str, name: str, partition: int | None, page: int
) -> None:
    """A page that is put under another key than it was asked by is waited for in vain."""
    asked = AskedPage(key)
    assert (asked.key, asked.kind, asked.name, asked.partition, asked.page) == (
        key, kind, name, partition, page,
    )  # fmt: skip
    assert (asked == OVERVIEW) is (key == "")
