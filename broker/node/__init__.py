"""One broker of the cluster: what belongs to one broker id, and the context that its requests carry."""

from broker.node.node import Listener, Node

__all__ = ["Listener", "Node"]
