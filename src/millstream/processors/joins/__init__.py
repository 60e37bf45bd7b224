"""Joins: operators with two inputs."""
