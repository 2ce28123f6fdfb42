"""One partition replica: leader and leader epoch, high watermark, appends, reads, and delayed operations."""

from broker.replicas.partition.partition import AppendResult, Partition, ReadResult, TimestampOffset

__all__ = ["AppendResult", "Partition", "ReadResult", "TimestampOffset"]
