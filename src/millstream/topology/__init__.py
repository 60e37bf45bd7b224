"""A topology as data: nodes, sub-topologies, levels, and their descriptions. Knows no engine."""
