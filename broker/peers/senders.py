"""Client ids of requests between nodes, as in Kafka: the receiver recognises requests of nodes by them."""

from __future__ import annotations

import re
from typing import Final

_OF_NODES: Final = re.compile(
    r"(?:broker-(\d+)-txn-marker-sender|(?:AddPartitionsManager|Persister)-client-(\d+))$"
)


def marker_sender(node_id: int) -> str:
    """Client id with which a node sends WriteTxnMarkers to other nodes.

    >>> marker_sender(2)
    'broker-2-txn-marker-sender'
    """
    return f"broker-{node_id}-txn-marker-sender"


def partition_verifier(node_id: int) -> str:
    """Client id with which a node sends AddPartitionsToTxn to a coordinator (KIP-890)."""
    return f"AddPartitionsManager-client-{node_id}"


def persister(node_id: int) -> str:
    """Client id with which a node sends the states of share partitions to share coordinators (KIP-932)."""
    return f"Persister-client-{node_id}"


def comes_from(sender: str, client_id: str | None) -> bool:
    """Whether a request with this client id comes from ``sender``, which is "client" or "node".

    >>> comes_from("node", marker_sender(2)), comes_from("client", marker_sender(2))
    (True, False)
    """
    return (sending_node(client_id) is not None) is (sender == "node")


def sending_node(client_id: str | None) -> int | None:
    """Return the id of the node that sent a request with this client id; None for a client's request.

    >>> sending_node(partition_verifier(3)), sending_node("app")
    (3, None)
    """
    found = _OF_NODES.match(client_id or "")
    return int(found[1] or found[2]) if found else None
