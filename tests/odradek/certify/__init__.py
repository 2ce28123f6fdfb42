"""The certifier: what it makes of a trace, of outputs and of plans; and whole runs with jobs that are right and wrong."""
