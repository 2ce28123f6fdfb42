"""Benchmarks of the broker, measured from outside: ``python -m benchmarks.run``. See README.md."""
