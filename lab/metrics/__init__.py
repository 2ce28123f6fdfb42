"""What Prometheus reads of a broker: ``GET /metrics``. Imported when it is asked for first."""
