"""Compaction: of each key the last record, of each producer what it may be asked for, of the rest nothing.

`choice` says which part of a log may be compacted and whether it is worth it, `offset_map` and `transactions` learn what
is in it, `filtering` decides what is left of a batch, `rewriting` does it all to files. Only the last touches the
disk, and it may run in any thread: what it works on does not change. The rules are those of Kafka's `Cleaner`.
"""
