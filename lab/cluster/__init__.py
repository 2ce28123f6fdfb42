"""Calls for a whole cluster that no Kafka has: reset, snapshots, clock skew, power loss and damaged files."""
