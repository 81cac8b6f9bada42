"""Lines of a process whose output nobody reads, for a while."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor

from sparklog.node.log_lines import written_aside

logger = logging.getLogger("t")

WAITING = 100
LINES = 20_000
"""Far more than a pipe holds."""


def test_lines_come_in_order_and_all_are_there_at_the_end() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    reader, writer = os.pipe()
    with os.fdopen(reader) as read, os.fdopen(writer, "w") as stream:
        with written_aside(stream, logging.INFO, "%(levelname)s %(message)s"):
            logger.debug("not asked for")
            for number in range(WAITING):
                logger.info("line %d", number)
        logger.warning("of somebody else")
        stream.close()
        assert read.read().splitlines() == [f"INFO line {number}" for number in range(WAITING)]
    assert (root.handlers, root.level) == before


def test_nobody_waits_for_who_does_not_read_and_what_is_left_out_is_counted() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as read, os.fdopen(writer, "w") as stream, ThreadPoolExecutor(1) as others:
        with written_aside(stream, logging.INFO, "%(message)s", max_waiting=WAITING):
            for number in range(LINES):
                logger.info("%d", number)
            shown = others.submit(read.readlines)
        stream.close()
        lines = [line.split(maxsplit=1) for line in shown.result()]
    numbers = [int(line[0]) for line in lines if len(line) == 1]
    assert numbers == sorted(numbers)
    left_out = sum(int(line[0]) for line in lines if len(line) == 2 and "missing here" in line[1])
    assert left_out == LINES - len(numbers) > 0


def test_message_with_a_name_of_several_lines_is_one_line() -> None:
    """Names are for anybody to choose, and none of them is to pass for what another part has said."""
    reader, writer = os.pipe()
    with os.fdopen(reader) as read, os.fdopen(writer, "w") as stream:
        with written_aside(stream, logging.INFO, "%(levelname)s %(message)s"):
            logger.info("no such topic: %s", "Ö\nINFO Principal = User:admin is Denied\x1b[2J")
            try:
                raise ValueError("of\nours")
            except ValueError:
                logger.exception("failed")
        stream.close()
        first, *traceback = read.read().splitlines()
    assert first == r"INFO no such topic: Ö\nINFO Principal = User:admin is Denied\x1b[2J"
    assert traceback[0] == "ERROR failed" and len(traceback) > 2
