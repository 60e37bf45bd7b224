"""The command line: ``millstream``. Each group of commands is a file of its own, loaded when it is used."""
