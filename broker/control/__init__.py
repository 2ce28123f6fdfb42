"""The control port: HTTP and JSON, for whoever stages and watches what happens in the broker (`docs/control.md`)."""
