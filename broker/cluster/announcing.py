"""Announces that a broker serves clients: a block of text on a terminal, else the log lines that tools wait for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.logging import get_unfiltered_logger, print_on_a_terminal
from broker.node import Listener
from compiled.finder import described
from protocol.slotted import slotted

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster


@slotted(frozen=True)
class Started:
    """The data of an announcement: ids, addresses, topics and directories of a cluster that serves clients."""

    node_ids: tuple[int, ...]
    cluster_id: str
    listeners: tuple[Listener, ...]
    data_dir: Path
    is_temporary: bool
    topics: tuple[str, ...]
    """Topics of the options --topic and --seed, as ``name:partitions``."""
    control_url: str | None
    authority: Path | None
    """Directory of the certificates that --tls has created."""
    start_ms: int

    @property
    def bootstrap_servers(self) -> str:
        """Advertised addresses of all listeners for ``bootstrap.servers``, without duplicates."""
        addresses = [f"{_host(each.advertised_host)}:{each.advertised_port}" for each in self.listeners]
        return ",".join(dict.fromkeys(addresses))


def announce_start(cluster: Cluster, control_url: str | None = None) -> None:
    """Announce that a cluster serves clients, and at which addresses."""
    config = cluster.settings.config
    announce(
        Started(
            node_ids=tuple(cluster.nodes),
            cluster_id=cluster.metadata.cluster_id,
            listeners=tuple(each for runtime in cluster.nodes.values() for each in runtime.listeners),
            data_dir=cluster.data_dir,
            is_temporary=config.log_dir is None,
            topics=tuple(f"{each.name}:{each.partitions}" for each in cluster.settings.topics),
            control_url=control_url,
            authority=cluster.settings.authority,
            start_ms=cluster.age_ms,
        )
    )


def announce(started: Started) -> None:
    """Print the lines of `block` on a terminal; else log the facts, even if the log level hides info lines."""
    if print_on_a_terminal(block(started)):
        return
    _log_started(started)
    if not sys.stdout.isatty():
        _log_for_wait_strategies(started.node_ids)


def block(started: Started) -> Iterator[str]:
    """Yield the lines for a terminal: addresses, and a command to try."""
    nodes = f", {len(started.node_ids)} nodes" if len(started.node_ids) > 1 else ""
    kept = "deleted at the end" if started.is_temporary else "kept"
    yield f"Odradek {_version()} serves clients after {started.start_ms} ms{nodes} ({described()})"
    yield f"  bootstrap.servers  {started.bootstrap_servers}"
    yield f"  data directory     {started.data_dir} ({kept})"
    yield f"  topics             {' '.join(started.topics) or 'none yet: a client creates one by using it'}"
    yield f"  control port       {started.control_url or 'none: --control-port 0 opens one, for faults, clock and trace'}"
    if started.authority is not None:
        from broker.config.authority_files import STORE_PASSWORD, authority_files

        ca, *stores = authority_files(started.authority).values()
        yield f"  certificates       trust {ca}, or {' or '.join(stores)} (password {STORE_PASSWORD})"
    if all(each.security_protocol == "PLAINTEXT" for each in started.listeners):
        topic = started.topics[0].partition(":")[0] if started.topics else "orders"
        yield f"  try                odradek produce {topic} hello -b {started.bootstrap_servers}"
    yield "  end                Ctrl-C"


def _version() -> str:
    # The imports take some milliseconds, which a broker in tests saves.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("odradek")
    except PackageNotFoundError:
        return "(not installed)"


def _log_started(started: Started) -> None:
    """Log one line with all facts, for programs (docs/control.md)."""
    facts: dict[str, object] = {} if started.control_url is None else {"control": started.control_url}
    if started.authority is not None:
        from broker.config.authority_files import STORE_PASSWORD, authority_files

        facts |= authority_files(started.authority)
        facts["truststore_password"] = STORE_PASSWORD
    get_unfiltered_logger().info(
        "started",
        node_id=started.node_ids[0],
        nodes=len(started.node_ids),
        cluster_id=started.cluster_id,
        listeners=[f"{each.name}://{_host(each.host)}:{each.port}" for each in started.listeners],
        advertised=[
            f"{each.name}://{_host(each.advertised_host)}:{each.advertised_port}"
            for each in started.listeners
        ],
        data_dir=str(started.data_dir),
        core=described(),
        **facts,
        start_ms=started.start_ms,
    )


def _log_for_wait_strategies(node_ids: tuple[int, ...]) -> None:
    """Log the lines for which tools such as Testcontainers wait until a container of Kafka or Redpanda is ready."""
    log = get_unfiltered_logger()
    for node_id in node_ids:
        for line in (
            f"[KafkaServer id={node_id}] started",
            "Kafka Server started",
            f"[BrokerLifecycleManager id={node_id}] Transitioning from RECOVERY to RUNNING.",
            "Successfully started Redpanda! Started Kafka API server",
        ):
            log.info(line)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
