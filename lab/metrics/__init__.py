"""The metrics of a broker for Prometheus: ``GET /metrics``. Imported at the first scrape."""
