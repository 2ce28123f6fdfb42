"""The lines that a broker prints once it serves clients."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker.cluster.announcing import Started, announce, block
from broker.node import Listener
from compiled.finder import described
from odradek.process import _free_port
from tests.support.deadlines import HANG_S, Deadline

ROOT = Path(__file__).parents[3]


def started(**more: Any) -> Started:
    listeners = (Listener("PLAINTEXT", "::", 1, "::1", 9092), Listener("PLAINTEXT", "::", 2, "::1", 9094))
    facts = {
        "node_ids": (1, 2),
        "cluster_id": "c",
        "listeners": listeners,
        "data_dir": Path("/data"),
        "is_temporary": False,
        "topics": ("orders:4",),
        "control_url": "http://127.0.0.1:1",
        "authority": None,
        "start_ms": 5,
    }
    return Started(**{**facts, **more})


def test_the_block_has_addresses_and_commands() -> None:
    text = "\n".join(block(started()))
    assert f"2 nodes ({described()})" in text
    assert "bootstrap.servers  [::1]:9092,[::1]:9094" in text
    assert "/data (kept)" in text
    assert "odradek produce orders hello -b [::1]:9092,[::1]:9094" in text
    text = "\n".join(block(started(topics=(), control_url=None, is_temporary=True)))
    assert "none yet" in text
    assert "--control-port 0 opens one" in text
    assert "deleted at the end" in text


def test_the_block_has_the_certificates_and_no_command_that_would_need_them() -> None:
    listeners = (Listener("SSL", "::", 1, "::1", 9092, "SSL"),)
    text = "\n".join(block(started(listeners=listeners, authority=Path("/data/tls"))))
    assert (
        "trust /data/tls/ca.pem, or /data/tls/truststore.p12 or /data/tls/truststore.jks (password odradek)"
        in text
    )
    assert "odradek produce" not in text
    assert "certificates" not in "\n".join(block(started()))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_lines_for_wait_strategies_come_last_and_not_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with structlog.testing.capture_logs() as lines:
        announce(started())
    first, *rest = [line["event"] for line in lines]
    assert first == "started"
    assert len(rest) == (0 if is_terminal else 8)


def test_a_terminal_gets_the_block_and_no_lines_for_tools(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    port = _free_port()
    command = [sys.executable, "-m", "server", "--port", str(port), "--data-dir", str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=its, stderr=its, stdin=subprocess.DEVNULL)
    os.close(its)
    try:
        said, deadline = b"", Deadline()
        while b"Ctrl-C" not in said:
            deadline.check(f"the block: {said!r}")
            said += os.read(ours, 4096)
    finally:
        process.terminate()
        assert process.wait(HANG_S) == 0
        os.close(ours)
    assert f"bootstrap.servers  127.0.0.1:{port}" in said.decode()
    assert b"Transitioning from RECOVERY" not in said
