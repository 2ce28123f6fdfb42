"""Compaction: keeps the last record of each key, and the batches that the producer state needs.

`choice` decides which part of a log may be compacted, and whether to compact it now. `offset_map` and `transactions` collect
the keys and the transactions of that part. `filtering` decides which records of a batch stay. `rewriting` writes the new
files. Only `rewriting` touches the disk. It may run in any thread, because the segments that it reads do not change. The
rules are those of Kafka's `Cleaner`.
"""
