"""A kit for tests of Spark jobs against Kafka: fixtures, and a driver that dies where you say (docs/spark/testing.md)."""
