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
TIMEOUT_S: Final = 3.0
MAX_BYTES: Final = 16 << 20


class TabError(Exception):
    """The Log tab cannot be read."""


def look(url: str) -> tuple[Any, Any]:
    """Return the tab's overview and its first page of groups, as parsed JSON.

    Raises:
        TabError
    """
    if not url.startswith(("http://", "https://")):
        raise TabError(f"{url}: the address of a Spark UI begins with http:// or https://")
    return _page(f"{url.rstrip('/')}/log/json/"), _page(f"{url.rstrip('/')}/log/groups/json/")


def _page(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(MAX_BYTES))
    except json.JSONDecodeError as error:
        raise TabError(f"{url}: no Log tab is there ({error})") from error
    except (OSError, HTTPException, ValueError) as error:
        raise TabError(f"{url}: {error}") from error


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
