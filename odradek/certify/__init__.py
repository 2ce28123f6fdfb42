"""The certifier: injects faults at a job's requests, and checks that the outputs stay the same (docs/certify.md)."""
