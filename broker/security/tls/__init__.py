"""TLS: key stores and trust stores, the SSL contexts of listeners, principals of certificates."""
