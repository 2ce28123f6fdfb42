"""The commands that speak Kafka's protocol, to any Kafka: topics, records, groups, transactions; and its files."""
