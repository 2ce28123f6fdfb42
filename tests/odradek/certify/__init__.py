"""Tests of the certifier: its analysis of traces and outputs, its plans, and whole runs with right and wrong jobs."""
