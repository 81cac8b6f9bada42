"""The command: `sparklog-top [--once] [--command-config FILE] [--metrics URL] BOOTSTRAP`."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

from sparklog.jobs.command_config import add_command_config, command_client
from sparklog.jobs.top.observation import ClusterWatch
from sparklog.jobs.top.tier_figures import MetricsPageError, TierWatch
from sparklog.protocol.errors import KafkaError

REFRESH_S: Final = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the overview until Ctrl-C; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="sparklog-top", description="The overview of a Kafka cluster, in a terminal."
    )
    parser.add_argument("bootstrap", metavar="BOOTSTRAP", help="host:port, several with commas")
    parser.add_argument("--once", action="store_true", help="print it once and end")
    add_command_config(parser)
    parser.add_argument(
        "--metrics",
        metavar="URL",
        help="the driver's metrics, http://DRIVER:4040/log/metrics: bytes and reads of the tier",
    )
    options = parser.parse_args(arguments)
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from sparklog.jobs.top.screen import screen
    except ImportError:
        print("sparklog-top needs the package rich: pip install rich", file=sys.stderr)
        return 1
    try:
        watch = ClusterWatch(
            command_client(options.bootstrap, options.command_config),
            None if options.metrics is None else TierWatch(options.metrics),
        )
        overview = watch.look()
    except MetricsPageError as error:
        print(error, file=sys.stderr)
        return 1
    except (KafkaError, ValueError) as error:
        print(f"No cluster answers at {options.bootstrap}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    console = Console()
    if options.once or not console.is_terminal:
        console.print(screen(overview, console.height if console.is_terminal else sys.maxsize))
        watch.close()
        return 0
    try:
        with Live(screen(overview, console.height), console=console, screen=True) as live:
            while True:
                began_s = time.monotonic()
                try:
                    live.update(screen(watch.look(), console.height), refresh=True)
                except KafkaError as error:
                    live.update(Text(f"The cluster does not answer: {error}"), refresh=True)
                except MetricsPageError as error:
                    live.update(Text(f"The driver's metrics cannot be read: {error}"), refresh=True)
                time.sleep(max(0.1, began_s + REFRESH_S - time.monotonic()))
    except KeyboardInterrupt:
        return 0
    finally:
        watch.close()


if __name__ == "__main__":
    sys.exit(main())
