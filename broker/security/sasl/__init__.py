"""SASL: the mechanisms, and the states of a connection during authentication."""
