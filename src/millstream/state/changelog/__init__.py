"""Changelogs: a store's writes as rows of a topic, and following them up to a version."""
