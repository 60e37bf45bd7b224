"""The commit: one epoch from plan to apply, and the manifest that is the only truth about it. Knows no engine."""
