"""The nodes of this process: how each starts and ends, and what they share."""

from broker.cluster.cluster import Cluster
from broker.cluster.errors import BrokerEnding, NoSuchNode, StartError

__all__ = ["BrokerEnding", "Cluster", "NoSuchNode", "StartError"]
