"""Start a broker with a crash point."""

from __future__ import annotations

import signal

from odradek.process import BrokerFailed, BrokerProcess

CRASH_POINTS_VARIABLE = "ODRADEK_CRASH_POINTS"


def restart_doomed(broker: BrokerProcess, crash_points: str | None) -> None:
    """Start the broker again with ``crash_points`` (``"txn.prepare.before:3"``), or without crash points (None)."""
    environment = {} if crash_points is None else {CRASH_POINTS_VARIABLE: crash_points}
    try:
        broker.restart(environment=environment)
    except BrokerFailed:
        # The broker may hit the crash point before it is ready, while it completes transactions decided before the kill.
        if crash_points is None or broker.exit_code != -signal.SIGKILL:
            raise
