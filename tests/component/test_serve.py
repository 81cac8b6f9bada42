"""What jobs/serve.py does before Spark is there."""

import subprocess
import sys

LOADED = """
import sys
import sparklog.jobs.serve
cluster = {"sparklog.driver." + each for each in ("application", "cluster")}
cluster |= {"sparklog.node.config", "sparklog.node.storage"}
print(cluster & set(sys.modules))
"""


def test_serve_loads_nothing_of_a_cluster_before_it_starts_spark() -> None:
    """Spark takes seconds to start and leaves a processor free meanwhile: what comes first comes on top."""
    done = subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
