"""The certifier: runs a job through faults at its requests, and judges its outputs (docs/certify.md)."""
