"""python -m tests.simulation.tables --seed 7: show what happens in a seed."""

import argparse

from tests.simulation.tables.world import run_seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    world = run_seed(parser.parse_args().seed)
    print(*world.trace, world.violation or "every invariant holds", sep="\n")


main()
