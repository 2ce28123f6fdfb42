"""Requests between the nodes of one cluster, in Kafka's protocol, over TCP."""

from broker.peers.peers import Peers

__all__ = ["Peers"]
