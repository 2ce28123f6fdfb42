"""A demonstration: unmodified clients process a real data set exactly once while processes are killed.

Workers read 336,776 flights from a topic, convert each into another record and write it to a second topic, in transactions
that also contain the committed offsets. Workers and the broker are killed while they do this. At the end a read_committed
consumer must get the result of each flight once, with the correct content.
"""
