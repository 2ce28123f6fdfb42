"""Explains why readers of a partition stop, why a group lags, what a transactional id waits for.

Pure: facts in, sentences out. `lab.views` collects the facts from the nodes of this process, `tools.explain` from any Kafka
cluster over its protocol.
"""
