"""A broker with listeners of a test's choice. `BrokerProcess` has one listener, on a port of its own choice.

with listening({"FIRST": "SASL_PLAINTEXT"}, settings, home) as ports:
    ports["FIRST"], ports["PLAINTEXT"]
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from odradek._server import command
from odradek.child import Child
from tests.support.deadlines import TEST_S, Deadline
from tests.support.forked import ForkedChild, start
from tests.support.raw import free_port

LOOK_PAUSE_S: Final = 0.02
STARTED: Final = '"event": "started"'


@contextmanager
def listening(
    protocols: Mapping[str, str],
    settings: Mapping[str, str],
    home: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, int]]:
    """Start a broker and yield its ports by listener name. The broker also has a listener ``PLAINTEXT``, for the test's
    setup.

    A traceback in the broker's log fails the test.
    """
    ports = {name: free_port() for name in ("PLAINTEXT", *protocols)}
    said = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in {"PLAINTEXT": "PLAINTEXT", **protocols}.items()
        ),
        **settings,
    }
    words = [word for name, value in said.items() for word in ("--set", f"{name}={value}")]
    log = home / "broker.log"
    log.write_bytes(b"")
    started = start(
        command("serve", "--data-dir", str(home / "data"), "--log-format", "json", *words, *arguments),
        log,
        environment={**os.environ, **(environment or {})},
        holds_input=False,
    )
    try:
        _wait(started, log)
        yield ports
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(TEST_S)
    assert "Traceback" not in log.read_text(), log.read_text()


def _wait(started: Child | ForkedChild, log: Path) -> None:
    deadline = Deadline(TEST_S)
    while STARTED not in log.read_text():
        assert started.is_running, log.read_text()
        assert not deadline.is_over, log.read_text()
        time.sleep(LOOK_PAUSE_S)
