"""The look of `lab.explain` at the nodes in this process."""
