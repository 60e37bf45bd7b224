"""A folder on the path of Spark's workers: what they import without importing Millstream."""
