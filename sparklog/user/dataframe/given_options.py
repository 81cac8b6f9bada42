"""The options of a user, case-insensitive; each one is known, reported or refused."""

import difflib
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.node.remote_log.uri import OPTION_PREFIX
from sparklog.user.dataframe.errors import DataSourceOptionError
from sparklog.user.dataframe.kafka_options import boolean, integer

_KAFKA_PREFIX: Final = "kafka."
_PREFIXES: Final = (_KAFKA_PREFIX, OPTION_PREFIX)


class GivenOptions:
    def __init__(
        self,
        options: Mapping[str, str],
        *,
        known: tuple[str, ...],
        without_effect: tuple[str, ...],
        report: Callable[[str], None],
    ) -> None:
        self.report = report
        self._options = {name.lower(): value for name, value in options.items()}
        canonical = {name.lower(): name for name in (*known, *without_effect)}
        ignored = {name.lower() for name in without_effect}
        for name in sorted(self._options):
            if name in ignored:
                report(f"Option '{canonical[name]}' has no effect here")
            elif name not in canonical and not name.startswith(_PREFIXES):
                nearest = difflib.get_close_matches(name, canonical, n=1, cutoff=0.8)
                if nearest:
                    raise DataSourceOptionError(
                        f"Option '{name}' is unknown; did you mean '{canonical[nearest[0]]}'?"
                    )
                report(f"Option '{name}' is unknown to the sparklog source and ignored")

    def text(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        return None if value is None else value.strip()

    def integer(self, name: str, low: int) -> int | None:
        value = self.text(name)
        return None if value is None else integer(name, value, low)

    def boolean(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        return default if value is None else boolean(name, value)

    def kafka_settings(self) -> dict[str, str]:
        return self._with_prefix(_KAFKA_PREFIX)

    def store_options(self) -> dict[str, str]:
        return self._with_prefix(OPTION_PREFIX)

    def _with_prefix(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): value
            for name, value in self._options.items()
            if name.startswith(prefix)
        }
