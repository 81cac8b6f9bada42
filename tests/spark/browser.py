"""A real browser, driven by WebDriver's own HTTP: chromium and its driver, where they are installed.

The protocol is JSON over HTTP, so there is nothing to depend on but the two programs.
"""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chaos.application import free_port

START_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 60.0


class Browser:
    """One window of a headless browser."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, url: str) -> None:
        """Go to a page and wait until it has loaded."""
        self._ask("url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:
        """Return what a function's body returns in the page."""
        return self._ask("execute/sync", {"script": script, "args": list(arguments)})

    def resize(self, width: int, height: int) -> None:
        """Make the page so large: what is inside the window."""
        command = {
            "cmd": "Emulation.setDeviceMetricsOverride",
            "params": {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        }
        self._ask("goog/cdp/execute", command)

    def prefer(self, theme: str) -> None:
        """Have the system ask for light or dark pages."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self._ask("goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}})

    def console(self) -> list[str]:
        """Return what the console was told since the last call: errors, and what a policy has blocked."""
        return [entry["message"] for entry in self._ask("se/log", {"type": "browser"})]

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self._ask("screenshot", None)))

    def wait(self, script: str) -> None:
        """Wait until a function's body returns something true in the page."""
        deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
        while not self.run(script):
            assert time.monotonic() < deadline_s, script
            time.sleep(0.05)

    def _ask(self, command: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"{self._session}/{command}", data, ANSWER_TIMEOUT_S) as answer:
            return json.load(answer)["value"]


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Yield a window of a browser of its own; skips the test where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver (Debian: chromium, chromium-driver) are not installed")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sparklog-browser-") as profile:
        process = subprocess.Popen(
            [driver, f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # JAVA's and Spark's settings are none of its business.
            env={"PATH": os.environ["PATH"], "HOME": profile},
        )
        try:
            session = _session(f"http://127.0.0.1:{port}", chromium, profile)
            try:
                yield Browser(session)
            finally:
                request = urllib.request.Request(session, method="DELETE")
                urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S).close()
        finally:
            process.terminate()
            process.wait()


def _session(driver: str, chromium: str, profile: str) -> str:
    options = {
        "binary": chromium,
        # Containers have neither a sandbox nor much shared memory; no page of the internet is opened.
        "args": [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}/chromium",
        ],
    }
    capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
    body = json.dumps({"capabilities": {"alwaysMatch": capabilities}}).encode()
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(f"{driver}/session", body, ANSWER_TIMEOUT_S) as answer:
                return f"{driver}/session/{json.load(answer)['value']['sessionId']}"
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)
