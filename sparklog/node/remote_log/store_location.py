"""Where a cluster's tier is: the URI of its store, and the store's options, some of which are secrets.

The driver announces it with the cluster's address, or a query's options name it. It travels with the query's
tasks, as the credentials of the cluster do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True, slots=True)
class StoreLocation:
    uri: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """By their names without `sparklog.remote.option.`, sorted."""

    @classmethod
    def of(cls, uri: str, options: Mapping[str, str]) -> Self:
        return cls(uri, tuple(sorted(options.items())))

    def to_text(self) -> str:
        """Return one line of text, secrets included."""
        return json.dumps({"uri": self.uri, "options": dict(self.options)})

    @classmethod
    def from_text(cls, text: str) -> Self:
        found = json.loads(text)
        return cls.of(found["uri"], found["options"])
