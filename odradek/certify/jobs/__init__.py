"""The job under test: its command, its processes, and the supervisor that restarts them."""
