"""A proxy before any Kafka cluster: it relays requests, and has the tools of the broker on their way (docs/proxy.md)."""
