"""A secret in the configuration, which is never shown. Source: Kafka's Password."""

from typing import Final

HIDDEN: Final = "[hidden]"


class Password:
    """Holds a secret; printed, logged or formatted it is `[hidden]`.

    >>> Password("s3cret"), f"{Password('s3cret')}", Password("s3cret").value
    ([hidden], '[hidden]', 's3cret')
    """

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)
