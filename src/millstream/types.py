"""Whole numbers that must not be mixed up.

Each is an ``int`` at run time and costs nothing; the type checker keeps an epoch from being passed where an
offset belongs. Nothing here knows what the numbers are used for.
"""

from __future__ import annotations

from typing import NewType

Epoch = NewType("Epoch", int)
"""One micro-batch of an application: 1 is the first, 0 is "before anything"."""

Attempt = NewType("Attempt", int)
"""One try of one task, unique within a lease term."""

Term = NewType("Term", int)
"""One reign of a lease's owner; a later owner has a higher term."""

Partition = NewType("Partition", int)
"""One partition of a topic, counted from 0."""

Offset = NewType("Offset", int)
"""The place of a record in its partition, counted from 0, without gaps."""

Version = NewType("Version", int)
"""The epoch whose changes a state store has applied last."""
