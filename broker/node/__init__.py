"""One node of the cluster: everything that belongs to a broker id, and the context of its requests."""

from broker.node.node import Listener, Node

__all__ = ["Listener", "Node"]
