"""The command: `sparklog-top [--once] URL`."""

import argparse
import json
import sys
import time
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any, Final

REFRESH_S: Final = 1.0
TIMEOUT_S: Final = 10.0
"""The tab has a page made by a driver that may be busy."""
GROUPS_AGAIN_S: Final = 0.5
FILE_COLUMNS: Final = 160
MAX_BYTES: Final = 16 << 20


class TabError(Exception):
    """The Log tab cannot be read."""


def look(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the tab's overview and its first page of groups, as parsed JSON.

    Raises:
        TabError
    """
    if not url.startswith(("http://", "https://")):
        raise TabError(f"{url}: the address of a Spark UI begins with http:// or https://")
    tab = f"{url.rstrip('/')}/log"
    overview, groups = _page(f"{tab}/json/"), _page(f"{tab}/groups/json/")
    if groups["group_count"] is None:  # coordinators are asked, and had not answered yet
        time.sleep(GROUPS_AGAIN_S)
        groups = _page(f"{tab}/groups/json/")
    return overview, groups


def _page(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            page = json.loads(answer.read(MAX_BYTES))
    except json.JSONDecodeError as error:
        raise TabError(f"{url}: no Log tab is there ({error})") from error
    except (OSError, HTTPException, ValueError) as error:
        raise TabError(f"{url}: {error}") from error
    if not isinstance(page, dict) or "failure" in page:
        raise TabError(f"{url}: {page.get('failure') if isinstance(page, dict) else 'no Log tab is there'}")
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the overview until Ctrl-C; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="sparklog-top", description="The overview of a cluster, in a terminal."
    )
    parser.add_argument("url", metavar="URL", help="the application's Spark UI: http://DRIVER:4040")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    options = parser.parse_args(arguments)
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from sparklog.jobs.top.screen import screen
    except ImportError:
        print("sparklog-top needs the package rich: pip install rich", file=sys.stderr)
        return 1
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, FILE_COLUMNS))
    try:
        seen = look(options.url)
        if options.once or not console.is_terminal:
            console.print(screen(*seen, console.height if console.is_terminal else sys.maxsize))
            return 0
        with Live(screen(*seen, console.height), console=console, screen=True) as live:
            while True:
                time.sleep(REFRESH_S)
                try:
                    live.update(screen(*look(options.url), console.height), refresh=True)
                except TabError as error:
                    live.update(Text(str(error)), refresh=True)
    except TabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
