"""Which slot runs which task, and who keeps copies of its state. Pure: it knows no engine and no clock."""
