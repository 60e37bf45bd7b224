"""A topology as data: nodes, sub-topologies, steps, and their descriptions. Knows no engine."""
