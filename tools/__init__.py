"""The commands that speak Kafka's protocol with any Kafka cluster, or read its files."""
