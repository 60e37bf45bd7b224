"""Local state: the directory, its locks, stores opened at a version, and cleaning."""
