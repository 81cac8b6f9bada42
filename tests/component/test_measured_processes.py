"""What a cluster costs includes what its processes have started."""

import subprocess
import sys

import psutil

from benchmarks.clusters import resident_mib

HOLDING = "bytearray(b'x') * (64 * 2**20)"
CHILD = f"held = {HOLDING}; print('up', flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_resident_memory_includes_descendants() -> None:
    """A driver's controller, and a broker's cleaner, are children of what was started."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        everything_mib = resident_mib([psutil.Process(process.pid)])
        alone_mib = psutil.Process(process.pid).memory_info().rss / 2**20
        process.communicate("\n")
    assert everything_mib > alone_mib + 64
