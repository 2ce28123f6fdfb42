"""One module per API, named like Kafka's API in snake case."""
