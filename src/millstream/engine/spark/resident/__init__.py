"""The resident engine: Spark allocates, places and supervises; the tasks stay.

A *slot* is a Spark job with a single task that does not end. Its Python worker connects to the coordinator
and runs epoch after epoch by command; blocks of a repartition go from slot to slot over Arrow Flight. What a
task does is `commit.task_attempt`'s business, here as in the engine that runs a Spark job per epoch.
"""
