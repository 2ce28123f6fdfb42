"""Collects the facts of `lab.explain` from the nodes of this process."""
