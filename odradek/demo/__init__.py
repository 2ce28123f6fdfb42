"""The main job as a demonstration: unmodified clients process a real data set exactly once while processes are killed.

336,776 flights are read from a topic, turned into another record each and written to a second topic, in transactions that
carry the read positions with them. Workers and the broker are killed on the way. In the end every flight must have its
result once, with the right content, for a read_committed reader.
"""
