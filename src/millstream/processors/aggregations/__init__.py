"""Aggregations of a grouped stream. Each has a file of its own, which declares all forms that it has.

`aggregation` says what a form is. `keyed` does an aggregation over the rows of a batch, `keyed_columns` over
its columns; both know no aggregation by name.
"""
