"""The commands for a running broker; each group is a module that is loaded when it is called."""
