"""Refuses settings that name controllers in several processes.

All nodes of a cluster run in one process. Three brokers that are started separately for a quorum of three would be three
clusters: records that one of them acknowledges are not in the others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from storage.config_def import ConfigError, Value

VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
# A numbered host name of a StatefulSet or a compose file, such as kafka-1.
_NUMBERED: Final = re.compile(r"(.*\D)(\d+)")


def check_quorum(values: Mapping[str, Value], node_ids: Collection[int], hosts: Collection[str]) -> None:
    """Raise `ConfigError` for a controller quorum with a node that this process does not run.

    Such a node is a voter with an id outside of ``node_ids``, or a bootstrap server whose host differs from one of
    ``hosts`` only in a number (kafka-1). More bootstrap servers than nodes are an error, too.
    """
    voters = [str(each).strip() for each in values[VOTERS] or ()]
    for voter in voters:
        number = voter.partition("@")[0]
        if number.isdecimal() and int(number) not in node_ids:
            raise _refused(VOTERS, voter, len(voters))
    servers = [str(each).strip() for each in values[BOOTSTRAP_SERVERS] or ()]
    if not servers:
        return
    if len(set(servers)) > len(node_ids):
        raise _refused(BOOTSTRAP_SERVERS, servers[-1], len(servers))
    for server in servers:
        if any(_are_siblings(_host_of(server), host) for host in hosts):
            raise _refused(BOOTSTRAP_SERVERS, server, len(servers))


def _host_of(server: str) -> str:
    return server.rpartition("/")[2].rpartition(":")[0].strip("[]")


def _are_siblings(host: str, ours: str) -> bool:
    """Whether two hosts have the same name with different numbers, like `kafka-0.kafka` and `kafka-1`."""
    theirs, own = _NUMBERED.fullmatch(host.partition(".")[0]), _NUMBERED.fullmatch(ours.partition(".")[0])
    if theirs is None or own is None:
        return False
    return theirs[1] == own[1] and int(theirs[2]) != int(own[2])


def _refused(name: str, entry: str, count: int) -> ConfigError:
    nodes = max(count, 2)
    return ConfigError(
        f"{name} names {entry}, a node that this process does not run: all nodes of a cluster run in one process here. "
        f"Start one with --nodes {nodes} and without {name}; in Kubernetes it is one pod behind one Service of {nodes} "
        "ports (docs/container.md)"
    )
