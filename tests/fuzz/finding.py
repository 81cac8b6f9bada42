"""What an input is that production does not stand as it should."""


class Finding(Exception):  # noqa: N818 - it is what is looked for
    """An oracle of a target says no."""


def expect(hold_count: object, what: str) -> None:
    """Say what is wrong, if it is."""
    if not hold_count:
        raise Finding(what)
