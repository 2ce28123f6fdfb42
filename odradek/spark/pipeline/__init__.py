"""Flights in, hourly delays out, exactly once: a producer, a Structured Streaming job, kills, and the proof."""
