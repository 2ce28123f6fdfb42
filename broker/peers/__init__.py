"""How the nodes of one cluster speak to each other: requests of Kafka's protocol, over TCP."""

from broker.peers.peers import Answered, Peers

__all__ = ["Answered", "Peers"]
