"""The nodes of this process: how each starts and ends, and what they share."""

from broker.cluster.cluster import Cluster, NoSuchNode, StartError

__all__ = ["Cluster", "NoSuchNode", "StartError"]
