"""What is tried: moments, faults, plans, and what a certificate needs."""
