"""Faults: failures that are staged on purpose. One language, one engine, however they are reached."""
