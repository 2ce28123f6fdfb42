"""The control port: HTTP and JSON to inject faults, advance the clock and watch the broker (`docs/control.md`)."""
