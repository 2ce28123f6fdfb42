"""The nodes of this process: how they start and stop, and what they share."""

from broker.cluster.cluster import Cluster
from broker.cluster.errors import BrokerEnding, NoSuchNode, StartError

__all__ = ["BrokerEnding", "Cluster", "NoSuchNode", "StartError"]
