"""Text becomes HTML in one place, and is escaped there."""

from sparklog.driver.ui.pages.html import UI_ROOT_MARK, Html, element, joined, link_to, log_page

EVIL = "<script>alert('x')</script>&\"quoted\""


def test_text_in_an_element_and_in_an_attribute_is_escaped() -> None:
    """Client ids, racks, query names and exceptions are anybody's text."""
    made = element("td", EVIL, title=EVIL)
    assert "<script" not in made
    assert made == (
        '<td title="&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;quoted&quot;">'
        "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;quoted&quot;</td>"
    )


def test_html_that_was_made_is_not_escaped_again_and_what_is_made_of_it_by_hand_is() -> None:
    """Forgetting `element` shows markup; it never lets any in."""
    inner = element("b", "bold")
    assert element("td", inner, 3, None) == "<td><b>bold</b>3</td>"
    assert element("td", f"{inner}") == "<td>&lt;b&gt;bold&lt;/b&gt;</td>"
    assert isinstance(joined([inner, "a & b"]), Html)


def test_text_cannot_hold_the_mark_that_stands_for_the_root() -> None:
    """A name with it would otherwise become part of an address."""
    assert UI_ROOT_MARK not in element("td", f"a{UI_ROOT_MARK}b", title=f"c{UI_ROOT_MARK}d")


def test_link_to_a_page_of_the_tab_begins_with_the_mark_and_has_escaped_parameters() -> None:
    """A proxy puts its own path there, and a name may not break out of the address."""
    link = link_to(log_page("topic", name="a&b=c", page=2), "a")
    assert link == f'<a href="{UI_ROOT_MARK}/log/topic/?name=a%26b%3Dc&amp;page=2">a</a>'


def test_address_that_runs_a_script_is_shown_and_not_linked() -> None:
    """An executor's log addresses come from Spark's configuration."""
    assert link_to("javascript:alert(1)", "stdout") == "<span>stdout</span>"
    assert link_to("http://worker:8081/log?a=1&b=2", "stdout") == (
        '<a href="http://worker:8081/log?a=1&amp;b=2">stdout</a>'
    )
