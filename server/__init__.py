"""The programs of the server: broker, proxy, export, import. Each assembles a process from the other packages."""
