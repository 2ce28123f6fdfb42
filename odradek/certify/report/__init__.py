"""The renderings of a certificate: terminal text, HTML page, JSON, and formats for continuous integration."""
