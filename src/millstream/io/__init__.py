"""Data in and out: producers, consumers, and topics as tables.

Everything goes through the log's own columns: bytes of keys and values, timestamps, headers. What is here
turns them into values, records and Arrow tables, and back, by serdes. Stores as tables are in
`millstream.query`; Spark's side is in `millstream.engine.spark`.
"""
