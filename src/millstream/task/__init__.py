"""One task, one epoch: read, order, operators, stores, sealed result. Knows no commit and no engine."""
