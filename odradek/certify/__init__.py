"""The certifier: runs a job under faults at its requests, and compares its outputs (docs/certify.md)."""
