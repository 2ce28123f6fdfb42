"""What TLS and SASL cost, beside Apache Kafka: ``python -m benchmarks.security``."""
