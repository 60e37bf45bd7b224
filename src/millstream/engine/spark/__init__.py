"""The engine: epochs as Spark jobs. The only folder that knows PySpark.

Spark reads nothing and plans nothing here: it decides where and when tasks run, moves blocks of rows
between them, and runs again what failed. What a task does is `commit.task_attempt`'s business.
"""
