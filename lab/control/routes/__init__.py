"""The operations of the control port, one module for each subject. They are discovered, not listed."""
