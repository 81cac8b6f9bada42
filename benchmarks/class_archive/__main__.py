"""Make the archive and print the path of the properties that name it."""

import argparse
import sys
from pathlib import Path

from benchmarks.class_archive.archive import prepare

parser = argparse.ArgumentParser(description="Archive the classes that Spark's JVMs load.")
parser.add_argument("directory", type=Path, help="where the archive and the properties are kept")
parser.add_argument("--defaults", type=Path, help="Spark properties to begin with")
parser.add_argument("--log4j", type=Path, help="the JVMs' log configuration")
options = parser.parse_args()
try:
    print(prepare(options.directory, options.defaults, options.log4j))
except OSError as error:
    sys.exit(f"Spark's classes are not archived: {error}")
