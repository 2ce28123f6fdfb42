"""What a cluster says about itself, as sentences: one function for each question."""
