"""The column tier: operators that take Polars expressions and never make a Python object per record.

A batch is the same in both tiers; only its columns differ. A column operator finds a `Column` there, or makes
one, and answers with columns; a row operator takes a `Column` for the sequence that it is. So tiers mix
freely, and what is converted is converted once, when the first operator asks.
"""
