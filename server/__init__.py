"""The programs of the server: broker, proxy, export, import. Each puts what it needs of the packages into a process."""
