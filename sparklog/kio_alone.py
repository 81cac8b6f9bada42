"""Load kio without hypothesis, which kio tells of its types where it is installed.

It is installed only where tests are written, and there it costs more than all else that a broker loads, in
every Python process of Spark: for its strategies it computes a table of Unicode in each new working
directory, and every executor has one. A process that has imported it before is left as it is.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
