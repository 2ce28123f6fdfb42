"""The metadata of the cluster: a durable log of records, and the image that results from the records, in memory."""

from broker.metadata.cluster import ClusterMetadata
from broker.metadata.creation import MorePartitions, NewTopic
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener
from broker.metadata.results import ApiError, CreatedTopic
from broker.metadata.values import BrokerRegistration, Endpoint, PartitionState, Topic

__all__ = [
    "ApiError",
    "BrokerRegistration",
    "ClusterMetadata",
    "CreatedTopic",
    "Endpoint",
    "Image",
    "MetadataListener",
    "MorePartitions",
    "NewTopic",
    "PartitionState",
    "Topic",
]
