"""Pages are known by what stands in their address, as Java hands it on."""

import pytest

from driver.ui.spark_tab import OVERVIEW, AskedPage


@pytest.mark.parametrize(
    ("key", "kind", "name", "page"),
    [
        ("", "", "", 1),
        ("topics\n\n", "topics", "", 1),
        ("topics\n\n1", "topics", "", 1),
        ("topic\nflights\n12", "topic", "flights", 12),
        ("topic\nflights\nx", "topic", "flights", 1),
        ("topic\n&lt;b&gt;\n-3", "topic", "&lt;b&gt;", 1),
    ],
)
def test_asked_page_is_read_off_its_key_and_keeps_it(key: str, kind: str, name: str, page: int) -> None:
    """A page that is put under another key than it was asked by is waited for in vain."""
    asked = AskedPage(key)
    assert (asked.key, asked.kind, asked.name, asked.page) == (key, kind, name, page)
    assert (asked == OVERVIEW) is (key == "")
