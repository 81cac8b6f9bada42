"""One tree's cluster: three brokers forked from this process, the controller in it, and the load.

Commands come as lines of JSON on standard input, results leave as lines on standard output. The brokers are
forked before anything else runs, and wait for the controller's address.
"""

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.microscope.load import CASES, Stream, produce
from benchmarks.microscope.phases import CAPTURED, MEASURED
from benchmarks.microscope.stopwatch import PhaseTime, Stopwatch
from sparklog.driver.controller.quorum.machine.candidate import ExpectedBroker
from sparklog.driver.controller.server import ControllerServer
from sparklog.executor.broker import Broker
from sparklog.node.apis.table import CLIENT_VERSIONS
from sparklog.node.config import BrokerConfig
from sparklog.node.loop.loop_lag import run_watched
from sparklog.node.security.application_secret import ApplicationSecret
from sparklog.node.serving import connection
from sparklog.protocol.codec.apis import ApiKey, known_versions
from sparklog.protocol.codec.frames import request_codec

BROKERS: Final = 3
_UP_WITHIN_S: Final = 120.0
_IDLE_S: Final = 1.5
_STILL_NS_PER_S: Final = 60_000_000
"""A broker reads the rest of its schemas while it serves already."""
_CONFIG: Final = {"auto.create.topics.enable": "false"}
_TOPIC_CONFIG: Final = {"file.delete.delay.ms": "1000"}
_CALLS: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)\s*$", re.MULTILINE)


def _load_schemas() -> None:
    """Read the schemas before the brokers are forked, which then share them."""
    for api_key in (*CLIENT_VERSIONS, ApiKey.API_VERSIONS):
        versions = CLIENT_VERSIONS.get(api_key, known_versions(api_key))
        for version in range(versions.min_version, versions.max_version + 1):
            request_codec(api_key, version)


def _freezing_survivors() -> AbstractContextManager[None]:
    """Return the collector's setting of a broker's process, whose module was moved between trees."""
    try:
        module = importlib.import_module("sparklog.node.loop.garbage")
    except ImportError:
        module = importlib.import_module("sparklog.executor.process.garbage")
    freezing: AbstractContextManager[None] = module.freezing_survivors()
    return freezing


def _is_compiled() -> bool:
    """Return whether the tree has extensions, whose methods cannot be replaced."""
    return connection.__file__.endswith(".so")


def _run_broker(pipe: Connection, directory: Path) -> None:
    arguments = pipe.recv()
    with (directory / f"broker-{arguments['node_id']}.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    with _freezing_survivors():
        run_watched(_serve(pipe, arguments), f"broker {arguments['node_id']}")


async def _serve(pipe: Connection, arguments: dict[str, Any]) -> None:
    stopwatch = Stopwatch()
    if not _is_compiled():
        stopwatch.hold_captured(CAPTURED)
    broker = Broker(
        node_id=arguments["node_id"],
        rack=arguments["rack"],
        controller=arguments["controller"],
        secret=arguments["secret"],
        config=BrokerConfig.from_mapping(_CONFIG),
        directories=[arguments["directory"]],
        host_name="127.0.0.1",
        owner_epoch=None,
    )

    def asked() -> None:
        try:
            question = pipe.recv()
        except EOFError:
            os.kill(os.getpid(), signal.SIGKILL)
        if question == "begin":
            stopwatch.begin(MEASURED)
            pipe.send(None)
        elif question == "end":
            pipe.send((stopwatch.end(), stopwatch.missing))
        else:
            collections = [generation["collections"] for generation in gc.get_stats()]
            pipe.send((time.process_time_ns(), time.thread_time_ns(), os.times()[:2], collections))

    asyncio.get_running_loop().add_reader(pipe.fileno(), asked)
    await broker.run()


class Cluster:
    """Three brokers of this process's tree, and a topic for each case."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        forked = multiprocessing.get_context("fork")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(BROKERS):
            ours, theirs = forked.Pipe()
            process = forked.Process(target=_run_broker, args=(theirs, directory), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._controller = ControllerServer(
            BrokerConfig.from_mapping(_CONFIG, racks=BROKERS),
            directory / "controller",
            secret=ApplicationSecret.new(),
            expected_brokers=[ExpectedBroker(number, f"rack-{number}") for number in range(BROKERS)],
            new_cluster_id="microscope",
        )
        self._streams: dict[str, list[Stream]] = {}
        self._admin: AdminClient | None = None

    def start(self) -> None:
        self._controller.start()
        host, _, port = self._controller.bootstrap_servers.rpartition(":")
        for number, pipe in enumerate(self._pipes):
            pipe.send(
                {
                    "node_id": number,
                    "rack": f"rack-{number}",
                    "controller": (host, int(port)),
                    "secret": self._controller.secret,
                    "directory": self._directory / f"broker-{number}",
                }
            )
        deadline_s = time.monotonic() + _UP_WITHIN_S
        while not self._all_up():
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the brokers are not up: see {self._directory}")
            time.sleep(0.05)

    def _all_up(self) -> bool:
        brokers = self._controller.image.brokers
        return len(brokers) == BROKERS and not any(broker.fenced for broker in brokers.values())

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._controller.stop()

    def streams(self, case: str) -> list[Stream]:
        """Return a producer's streams to the three partitions of a case's topic, one led by each broker."""
        if case not in self._streams:
            endpoints = {
                number: broker.listeners[0] for number, broker in self._controller.image.brokers.items()
            }
            servers = ",".join(f"{one.host}:{one.port}" for one in endpoints.values())
            topic = case.replace(" ", "-")
            self._admin = AdminClient({"bootstrap.servers": servers})
            created = NewTopic(topic, BROKERS, BROKERS, config=_TOPIC_CONFIG)
            self._admin.create_topics([created])[topic].result(30)
            leaders = self._leaders(topic)
            self._streams[case] = [
                Stream(
                    (endpoints[leader].host, endpoints[leader].port), topic, number, CASES[case], 7 + number
                )
                for number, leader in leaders.items()
            ]
        return self._streams[case]

    def _leaders(self, topic: str) -> dict[int, int]:
        deadline_s = time.monotonic() + _UP_WITHIN_S
        while time.monotonic() < deadline_s:
            found = self._controller.image.topics.by_name.get(topic)
            if found is not None and all(
                each.leader is not None and len(each.isr) == BROKERS for each in found.partitions.values()
            ):
                time.sleep(0.5)  # until the brokers have heard of it
                return {
                    number: each.leader
                    for number, each in found.partitions.items()
                    if each.leader is not None
                }
            time.sleep(0.05)
        raise RuntimeError(f"topic {topic} has no leaders")

    def forget(self, case: str) -> None:
        """Delete a case's topic: the rounds of all cases take gigabytes."""
        for stream in self._streams.pop(case):
            stream.close()
        assert self._admin is not None, "it has created the topic"
        topic = case.replace(" ", "-")
        self._admin.delete_topics([topic])[topic].result(30)

    def ask(self, question: str) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(question)
        return [pipe.recv() for pipe in self._pipes]

    def idle_ns_per_s(self) -> float:
        """Return the CPU of the three brokers without load, once they have stood still."""
        deadline_s = time.monotonic() + _UP_WITHIN_S
        while True:
            before, began_s = self.ask("times"), time.monotonic()
            time.sleep(_IDLE_S)
            spent_ns = sum(
                late[0] - early[0] for early, late in zip(before, self.ask("times"), strict=True)
            ) / (time.monotonic() - began_s)
            if spent_ns < _STILL_NS_PER_S or time.monotonic() > deadline_s:
                return spent_ns

    def plain(self, case: str, batches: int, in_flight: int, idle_ns_per_s: float) -> dict[str, Any]:
        """Return the CPU a batch without wrappers, in microseconds."""
        streams = self.streams(case)
        before = self.ask("times")
        took_s = produce(streams, batches, in_flight)
        after = self.ask("times")
        made = batches * len(streams)
        total_ns = sum(late[0] - early[0] for early, late in zip(before, after, strict=True))
        loop_ns = sum(late[1] - early[1] for early, late in zip(before, after, strict=True))
        user_s = sum(late[2][0] - early[2][0] for early, late in zip(before, after, strict=True))
        system_s = sum(late[2][1] - early[2][1] for early, late in zip(before, after, strict=True))
        return {
            "total": (total_ns - idle_ns_per_s * took_s) / made / 1_000,
            "other threads": (total_ns - loop_ns) / made / 1_000,
            "user share": user_s / max(user_s + system_s, 1e-9),
            "took_s": took_s,
        }

    def phases(self, case: str, batches: int, in_flight: int) -> dict[str, Any]:
        """Return name, nanoseconds, those of wrappers, and calls a batch of each phase."""
        streams = self.streams(case)
        self.ask("begin")
        produce(streams, batches, in_flight)
        made = batches * len(streams)
        sums: dict[str, PhaseTime] = {}
        missing: list[str] = []
        for phases, absent in self.ask("end"):
            missing = absent
            for phase in phases:
                _, *before = sums.get(phase.name, PhaseTime(phase.name, 0.0, 0.0, 0.0))
                more = (one + two / made for one, two in zip(before, phase[1:], strict=True))
                sums[phase.name] = PhaseTime(phase.name, *more)
        return {"phases": list(sums.values()), "missing": missing}

    def calls(self, case: str, batches: int, in_flight: int) -> dict[str, float]:
        """Return the system calls a batch, as strace counts them; empty where it may not."""
        if shutil.which("strace") is None:
            return {}
        streams = self.streams(case)
        output = self._directory / "calls"
        pids = [argument for process in self._processes for argument in ("-p", str(process.pid))]
        strace = subprocess.Popen(
            ["strace", "-c", "-f", "-q", "-o", str(output), *pids], stderr=subprocess.DEVNULL
        )
        time.sleep(1.0)  # it says nothing once it is attached
        produce(streams, batches, in_flight)
        strace.send_signal(signal.SIGINT)
        strace.wait()
        counted = _CALLS.findall(output.read_text()) if output.exists() else []
        return {name: int(count) / batches / len(streams) for count, name in counted if name != "total"}


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="sparklog-microscope-"))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _load_schemas()
    cluster = Cluster(directory)
    try:
        cluster.start()
        idle = cluster.idle_ns_per_s()
        print(json.dumps({"idle": idle, "compiled": _is_compiled()}), file=answers, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            work = (asked["case"], asked["batches"], asked["in_flight"])
            result: Any
            if asked["mode"] == "plain":
                result = cluster.plain(*work, idle)
            elif asked["mode"] == "phases":
                result = cluster.phases(*work)
            elif asked["mode"] == "calls":
                result = cluster.calls(*work)
            else:
                result = cluster.forget(asked["case"])
            print(json.dumps(result), file=answers, flush=True)
    finally:
        with contextlib.suppress(Exception):
            cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
