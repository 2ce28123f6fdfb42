"""Directories that change hands: out to Apache Kafka, in from a real cluster (docs/exchange.md).

The broker is stopped meanwhile.
"""
