"""What a broker's collector keeps over time, in a process with as few objects as a broker has at first."""

import subprocess
import sys

PROCESS = """
import gc

from sparklog.node.loop.garbage import MUCH_OBJECTS, freezing_survivors

batch = 5 * MUCH_OBJECTS
with freezing_survivors():
    lasting = gc.get_freeze_count()
    most = 0
    for _ in range(3 * (lasting + batch) // batch + 1):
        waiting = [[] for _ in range(batch)]
        gc.collect()
        for each in waiting:
            each.append(each)
        del waiting, each
        most = max(most, gc.get_freeze_count())
print(lasting < most < 2 * lasting + 2 * batch, lasting, most, batch)
"""


def test_what_was_frozen_on_its_way_does_not_stay_for_ever() -> None:
    """Requests for thousands of partitions wait when everything is frozen, are answered, and are cycles."""
    done = subprocess.run([sys.executable, "-c", PROCESS], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("True"), done.stdout
