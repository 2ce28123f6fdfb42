"""A proxy in front of any Kafka cluster: it relays requests and applies fault rules, trace and views (docs/proxy.md)."""
