"""What Millstream costs and what it wins, measured: `make bench`, or `make bench-quick` in a minute.

A case is a function that measures something twice or more, in one run and on one machine, and says what it
found as `Figure` objects. Only ratios and goals travel between machines; absolute figures describe this one.
"""
