"""Bounded summaries of a broker's state. They are computed in slices when a viewer requests them, and never stored."""
