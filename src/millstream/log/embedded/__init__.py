"""The embedded log: topics in a folder."""
