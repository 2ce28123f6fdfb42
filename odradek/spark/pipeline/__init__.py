"""A demonstration: flights in, hourly delays out, exactly once, while every process is killed and restarted."""
