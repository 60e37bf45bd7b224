"""The column tier: operators that take Polars expressions and never make a Python object per record.

A batch is the same in both tiers; only where its columns stand differs. A column operator takes a `Column` as
a series and answers with series; a row operator takes it for the sequence that it is. So tiers mix freely,
and what is converted is converted once, when the first operator asks.
"""
