"""Joins of tables by a foreign key: left rows subscribe to right rows, and are told of them.

Three steps, as in Kafka Streams. The left table's task sends *subscriptions* to where the right row is
(`sender`); the right table's task keeps them, and answers each with the right row, at once and whenever that
changes (`responder`); back at the left row's task the answers become results (`resolver`). A subscription and
its answers carry a hash of the left value: an answer to what the left row was before is stale, and dropped.
"""
