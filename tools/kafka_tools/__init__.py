"""Kafka's own tools (`kafka-topics.sh` and others) with their options and output, one module each."""
