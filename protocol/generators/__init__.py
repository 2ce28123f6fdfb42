"""Programs that generate modules of this project from `protocol.records` and from kio, a package of Kafka's schemas."""
