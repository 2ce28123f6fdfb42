"""Programs that generate modules of this project from the schemas of kio and `protocol.records`."""
