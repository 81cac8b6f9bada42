"""Wheels of source trees, and new environments to install them into, without a package index."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder


def build_wheel(project: Path, directory: Path) -> Path:
    """Build the wheel of a source tree into a directory."""
    (wheel,) = WheelBuilder(str(project)).build(directory=str(directory), versions=["standard"])
    return Path(wheel)


def install(environment: Path, *wheels: Path) -> Path:
    """Make an environment with these wheels alone, and return its interpreter.

    Their dependencies come from the environment of the tests, whose packages stand behind the installed ones
    on the path. An editable installation there stays without effect: a `.pth` file names no further ones.
    """
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    command = [sys.executable, "-m", "uv", "pip", "install"]
    # Compiled once: where Python keeps nothing, every process would compile it.
    options = [
        "--quiet",
        "--offline",
        "--no-config",
        "--no-deps",
        "--compile-bytecode",
        "--python",
        str(python),
    ]
    subprocess.run([*command, *options, *map(str, wheels)], check=True)
    (site_packages,) = (environment / "lib").glob("python*/site-packages")
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python
