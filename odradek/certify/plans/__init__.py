"""What the certifier tries: faults at moments (requests or broker steps), plans, and what a certificate requires."""
