"""What the control port can be asked, a module for each subject; found, not listed."""
