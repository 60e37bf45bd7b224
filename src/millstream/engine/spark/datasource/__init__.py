"""Spark's side of data in and out: the data source ``millstream``, for frames and streaming frames.

Spark's tasks read the log themselves, a task per partition, as Arrow batches; what they write is sealed by
tasks and committed by the driver (:mod:`millstream.commit.batch_writes`).
"""
