"""Tests of Spark jobs against Kafka: fixtures, and a driver that is killed at a chosen step (docs/spark/testing.md)."""
