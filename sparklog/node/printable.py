"""Arbitrary names in text for people: in logs, on terminals, on pages."""


def printable(text: str) -> str:
    r"""Return a text with unprintable characters escaped: a terminal would obey some of them.

    >>> printable("orders"), printable("a\x1b[2Jb")
    ('orders', 'a\\x1b[2Jb')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
