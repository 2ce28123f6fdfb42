"""Enforcement of client quotas (KIP-13, KIP-124, KIP-599): the usage of each client, and its throttle time."""
