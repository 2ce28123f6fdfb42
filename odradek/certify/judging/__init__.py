"""Judge a run: rows, comparison, findings, and the user's check."""
