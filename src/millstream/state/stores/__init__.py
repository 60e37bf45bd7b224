"""Typed stores over an overlay over a backend: key-value, window, session, versioned, list, buffer."""
