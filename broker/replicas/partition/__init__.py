"""A partition's replica on a node: its leader, its high watermark, the delayed operations, and what readers get."""

from broker.replicas.partition.partition import AppendResult, Partition, ReadResult, TimestampOffset

__all__ = ["AppendResult", "Partition", "ReadResult", "TimestampOffset"]
