"""Programs that write modules of this project from the schemas that kio and `protocol.records` hold."""
