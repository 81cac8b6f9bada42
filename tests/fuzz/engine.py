"""One target under atheris, in a process of its own: `python -m tests.fuzz.engine TARGET DIRECTORY SECONDS`.

Findings do not end it: the first input of each is written to the directory, and it goes on.
"""

import contextlib
import hashlib
import json
import logging
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import atheris

from tests.fuzz.corpus import read_corpus

MEMORY_BYTES: Final = 768 << 20
"""What a process may have beyond what it has when the target is loaded."""
MAX_LENGTH_BYTES: Final = 4096
HANGS_S: Final = 120
"""After so long by the clock an input is given up, and the process with it."""
_INSTRUMENTED: Final = ["sparklog", "executor", "driver"]


def main() -> None:
    """Fuzz, until the time is over."""
    name, directory, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=_INSTRUMENTED):
        from tests.fuzz import targets, watch

        target = targets.load(name)
    if name in ("requests", "connections"):
        _instrument_walkers()
    inputs, findings = directory / "inputs", directory / "findings"
    for each in (inputs, findings):
        each.mkdir(parents=True, exist_ok=True)
    for data in read_corpus(name).values():
        (inputs / hashlib.sha1(data).hexdigest()).write_bytes(data)
    known = {path.name for path in findings.iterdir()}
    counter = directory / "counted.json"
    counted = json.loads(counter.read_text())["inputs"] if counter.exists() else 0
    inputs_count = 0

    def take(data: bytes) -> None:
        nonlocal inputs_count
        inputs_count += 1
        try:
            watch.play(target, data)
        except Exception as error:
            place = watch.place_of(error)
            found = hashlib.sha1(place.encode()).hexdigest()[:12]
            if found not in known:
                known.add(found)
                (findings / found).write_bytes(data)
                (findings / f"{found}.txt").write_text(f"{place}\n{error!r}\n")
                print(f"FOUND by {name}: {place}: {error}", flush=True)
        if inputs_count % 100 == 0:
            counter.write_text(json.dumps({"inputs": counted + inputs_count}))

    with _bounded_memory():
        atheris.Setup(
            [
                sys.argv[0],
                str(inputs),
                f"-max_total_time={seconds}",
                f"-max_len={MAX_LENGTH_BYTES}",
                f"-timeout={HANGS_S}",
                "-rss_limit_mb=0",
                f"-artifact_prefix={findings}/",
                "-print_final_stats=1",
                "-reload=0",
            ],
            take,
        )
        atheris.Fuzz()


def _instrument_walkers() -> None:
    """Have atheris see into the walks that the guard compiles for each version of each API."""
    from sparklog.protocol.codec.apis import ApiKey, known_versions, request_type
    from sparklog.protocol.codec.guard import walker

    for api_key in ApiKey:
        versions = known_versions(api_key)
        for version in range(versions.min_version, versions.max_version + 1):
            atheris.instrument_func(walker(request_type(api_key, version)))


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit: Any = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    yield


if __name__ == "__main__":
    main()
