"""Moments, faults, plans, and the requirements of a certificate: what the certifier tries."""
