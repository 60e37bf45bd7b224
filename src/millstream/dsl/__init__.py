"""Kafka Streams' DSL: typed, immutable handles that build a topology. Knows no engine."""
