"""How the nodes of one cluster speak to each other: requests of Kafka's protocol, over TCP."""

from broker.peers.peers import Peers

__all__ = ["Peers"]
