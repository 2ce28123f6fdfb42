"""The control port: HTTP and JSON to inject faults, advance the clock and observe the broker (`docs/control.md`)."""
