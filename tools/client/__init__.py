"""A Kafka client for the command line: blocking sockets, one request in flight."""
