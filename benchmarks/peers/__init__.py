"""Comparison with other brokers: the same loads for each, in alternation, and the ratio of each figure to Apache Kafka's."""
