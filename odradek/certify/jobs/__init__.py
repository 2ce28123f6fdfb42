"""The job under test: its command, its processes, and the supervisor that starts them again."""
