"""Explanations: why readers of a partition stop, why a group lags, what a transactional id waits for.

Pure: facts in, sentences out. `lab.views` takes the facts from the nodes of this process, `tools.explain` asks any Kafka
for them by its protocol.
"""
