"""What the broker costs, measured from outside: ``python -m benchmarks.run``. See README.md."""
