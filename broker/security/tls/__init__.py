"""TLS: key stores and trust stores, the contexts of listeners, the principal of a certificate."""
