"""State stores: bytes to bytes underneath, typed faces on top. Knows no operator and no engine."""
