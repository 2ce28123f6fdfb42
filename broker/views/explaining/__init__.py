"""The look of `broker.explain` at the nodes in this process."""
