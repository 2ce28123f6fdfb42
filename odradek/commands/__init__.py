"""The commands that speak to a running broker, each group in a module that is loaded when it is called."""
