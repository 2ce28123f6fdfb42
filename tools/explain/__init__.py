"""Explanations of a cluster's state, as sentences: one function per subject."""
