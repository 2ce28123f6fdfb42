"""A broker that is started with a crash point."""

from __future__ import annotations

import signal

from odradek.process import BrokerFailed, BrokerProcess

CRASH_POINTS_VARIABLE = "ODRADEK_CRASH_POINTS"


def restart_doomed(broker: BrokerProcess, crash_points: str | None) -> None:
    """Start the broker again with ``crash_points`` (``"txn.prepare.before:3"``), or without any (None)."""
    environment = {} if crash_points is None else {CRASH_POINTS_VARIABLE: crash_points}
    try:
        broker.restart(environment=environment)
    except BrokerFailed:
        # It may reach its point before it is ready: while it finishes what was decided before its last death.
        if crash_points is None or broker.exit_code != -signal.SIGKILL:
            raise
