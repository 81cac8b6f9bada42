"""Processes of a broker's own, which run one of this project's modules beside its event loop."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any


def start_module(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    **streams: Any,
) -> "subprocess.Popen[bytes]":
    """Start `python -m module` with this process's interpreter and code; `streams` as of Popen.

    `-P`: nothing is imported from the working directory, which is an executor's, with its users' files.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            "OMP_NUM_THREADS": "1",
            **environment,
        },
        **streams,
    )
