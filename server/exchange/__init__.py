"""Exports data directories to Apache Kafka, and imports partitions from a real cluster (docs/exchange.md).

The broker must be stopped meanwhile.
"""
