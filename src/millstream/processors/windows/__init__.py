"""Aggregations of streams that are cut by time."""
