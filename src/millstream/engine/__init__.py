"""Engines: who runs the tasks of an epoch, and where. Only `engine.spark` knows PySpark."""
