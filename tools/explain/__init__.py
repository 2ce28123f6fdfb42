"""Explains the state of any Kafka cluster, with facts from its protocol or from Odradek's control port."""
