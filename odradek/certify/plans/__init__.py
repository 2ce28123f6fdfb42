"""What is tried: moments, faults, plans, and the requirements of a certificate."""
