"""Authentication and authorization of clients: TLS, SASL, ACLs."""
