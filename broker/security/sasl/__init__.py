"""SASL: the mechanisms, and the order in which a connection goes through them."""
