"""What the settings of an application ask of its assignment."""

from __future__ import annotations

from millstream.config import StreamsConfig
from millstream.engine.assignment.assigner import SlotAssigner
from millstream.engine.assignment.model import AssignmentRules
from millstream.state.local.task_stores import supplier_of
from millstream.topology.plan import Plan, SubTopology

__all__ = ["slot_assigner"]


def slot_assigner(config: StreamsConfig, plan: Plan, *, applies_at_once: bool = True) -> SlotAssigner:
    """Tasks with logged stores on disk may have copies. Global stores are everywhere already."""
    stateful = {sub.number for level in plan.levels for sub in level if _has_copies(config, sub)}
    rules = AssignmentRules(
        standbys=config.num_standby_replicas,
        acceptable_lag=config.acceptable_recovery_lag,
        max_warmups=config.max_warmup_replicas,
        spread_over=tuple(config.rack_aware_assignment_tags),
    )
    return SlotAssigner(stateful, rules, applies_at_once)


def _has_copies(config: StreamsConfig, sub: SubTopology) -> bool:
    """What is in memory is gone when another slot opens it, so a copy of it would be of no use."""
    return not sub.is_global and any(
        spec.logging and supplier_of(spec, config.backend, config.rocksdb_config_setter).persistent
        for spec in sub.stores.values()
    )
