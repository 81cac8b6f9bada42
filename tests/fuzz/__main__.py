"""`make fuzz MINUTES=n`: every target in turn, for its share of the time; ends with 1 if something was found.

What was learnt and counted stays in `build/fuzz`, and the next run goes on from there. A finding is an input:
`--play FILE --target NAME` plays it again, with its traceback.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS, load
from tests.fuzz.watch import play

BUILD = Path(__file__).parents[2] / "build" / "fuzz"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only this one; may be repeated")
    parser.add_argument("--play", type=Path, help="play one input, of a finding")
    parser.add_argument(
        "--directory", type=Path, default=BUILD, help="where inputs, findings and counts are kept"
    )
    given = parser.parse_args()
    targets = given.target or list(TARGETS)
    if given.play is not None:
        play(load(targets[0]), given.play.read_bytes())
        return 0
    seconds = max(1, int(given.minutes * 60 / len(targets)))
    found = 0
    for target in targets:
        directory = given.directory / target
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / "log").open("ab") as log:
            command = [sys.executable, "-m", "tests.fuzz.engine", target, str(directory), str(seconds)]
            ended = subprocess.run(command, stdout=log, stderr=log, check=False)
        findings = sorted(path for path in (directory / "findings").glob("*") if path.suffix != ".txt")
        found += len(findings) + (ended.returncode != 0)
        print(f"{target:14} {_inputs(directory):12,} inputs in all, {len(findings)} findings", flush=True)
        for path in findings:
            said = path.with_suffix(".txt")
            print(f"    {path}")
            print(f"        {said.read_text().splitlines()[0] if said.exists() else 'it does not end'}")
        if ended.returncode:
            print(f"    ended with {ended.returncode}: see {directory / 'log'}")
    print(f"{sum(_inputs(given.directory / target) for target in TARGETS):,} inputs in all")
    return 1 if found else 0


def _inputs(directory: Path) -> int:
    counted = directory / "counted.json"
    return int(json.loads(counted.read_text())["inputs"]) if counted.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
