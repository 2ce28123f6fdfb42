"""A Kafka client for the command line: one request at a time, over blocking sockets."""
