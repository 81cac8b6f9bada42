"""Names that anybody may choose, in lines that others read: in logs, on terminals, on pages."""


def printable(text: str) -> str:
    r"""Return a text with everything escaped that is not to be seen: a terminal obeys some of it.

    >>> printable("orders"), printable("a\x1b[2Jb")
    ('orders', 'a\\x1b[2Jb')
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
