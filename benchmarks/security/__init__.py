"""The cost of TLS and SASL, compared with Apache Kafka: ``python -m benchmarks.security``."""
