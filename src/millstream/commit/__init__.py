"""The commit: one epoch from plan to apply, and the manifest, its only truth. Knows no engine."""
