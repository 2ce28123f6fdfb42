"""What a certificate looks like: on a terminal, as a page, as JSON, for continuous integration."""
