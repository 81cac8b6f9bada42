"""Import kio without hypothesis, with which kio registers its types if it is installed.

hypothesis is installed only for tests, and there it costs more than all else that a broker imports, in every
Python process of Spark: its strategies compute a table of Unicode in each new working directory, and every
executor has one. A hypothesis that is already imported stays.
"""

import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
