"""The subcommands of `odradek`; each module is imported when its command is called."""
