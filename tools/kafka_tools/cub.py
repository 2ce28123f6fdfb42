"""The tool `cub kafka-ready`: scripts and health checks for confluentinc/cp-kafka use it to wait for a cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tools.client.cluster import Cluster
from tools.client.errors import ToolError, Unreachable
from tools.commands.common import reporting, security_of
from tools.kafka_tools.common import HELP

if TYPE_CHECKING:
    from odradek.client_security import ClientSecurity

PAUSE_S: Final = 0.2


@click.group(context_settings=HELP)
def command() -> None:
    """Wait for a cluster."""


@command.command("kafka-ready")
@click.argument("brokers", type=click.IntRange(1), metavar="BROKERS")
@click.argument("timeout_s", type=float, metavar="SECONDS")
@click.option("-b", "--bootstrap-servers", "bootstrap", required=True, metavar="HOST:PORT[,...]")
@click.option("-c", "--config", "config_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@reporting
def kafka_ready(brokers: int, timeout_s: float, bootstrap: str, config_file: Path | None) -> None:
    """Wait until BROKERS brokers run; the exit code is 1 if that takes longer than SECONDS."""
    deadline = time.monotonic() + timeout_s
    security = security_of(config_file)
    while True:
        found = _brokers(bootstrap, security)
        if found >= brokers:
            return
        if time.monotonic() >= deadline:
            raise ToolError(f"{bootstrap}: {found} of {brokers} brokers are running after {timeout_s:g} s")
        time.sleep(PAUSE_S)


def _brokers(bootstrap: str, security: ClientSecurity | None) -> int:
    try:
        with Cluster(bootstrap, security) as cluster:
            cluster.refresh()
            return len(cluster.nodes)
    except Unreachable:
        return 0
