"""What is right: rows, comparison, findings, the user's check."""
