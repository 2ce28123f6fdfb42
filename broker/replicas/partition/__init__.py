"""A partition's replica on a node: who leads, what is committed, who waits for it, what readers get."""

from broker.replicas.partition.partition import AppendResult, Partition, ReadResult, TimestampOffset

__all__ = ["AppendResult", "Partition", "ReadResult", "TimestampOffset"]
