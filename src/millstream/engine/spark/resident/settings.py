"""What the resident engine asks of Spark's settings, and what it makes of the application's."""

from __future__ import annotations

from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.engine.assignment.model import AssignmentRules
from millstream.engine.spark.resident.assigner import SlotAssigner
from millstream.engine.spark.resident.slot import SlotSettings
from millstream.engine.spark.resident.slot_pool import PoolSettings
from millstream.engine.spark.resident.tls import TlsFiles, tls_files
from millstream.errors import ConfigError
from millstream.state.local.task_stores import supplier_of
from millstream.topology.plan import Plan, SubTopology

_LONGEST_BEAT_S: Final = 1.0
_SHORTEST_PATIENCE_S: Final = 2.0
"""Of a slot: shorter leases are for tests, and a busy machine must not end its slots."""
_LOOPBACK: Final = ("127.", "localhost", "::1")
_ENCRYPTED: Final = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")


def check_settings(conf: Any, tls: TlsFiles | None = None) -> None:
    """Refuse settings of Spark that would end slots, or that promise what slots do not keep."""
    if tls is not None:
        tls.check()
    if conf.get("spark.python.worker.killOnIdleTimeout", "false") == "true":
        raise ConfigError(
            "spark.python.worker.killOnIdleTimeout is 'true': Spark would end workers that stay, as those of "
            "engine='resident' do. Remedy: leave it 'false', or use engine='jobs'."
        )
    host = conf.get("spark.driver.host", "127.0.0.1")
    encrypted = [name for name in _ENCRYPTED if conf.get(name, "false") == "true"]
    if encrypted and tls is None and not host.startswith(_LOOPBACK):
        raise ConfigError(
            f"{encrypted[0]} is 'true', but the connections between slots are not encrypted, and would leave "
            f"this machine ({host}). Remedy: name the files for TLS with StreamsConfig(tls_certificate=..., "
            "tls_key=..., tls_ca=...), or use engine='jobs', whose connections are Spark's own."
        )


def slot_settings(config: StreamsConfig) -> SlotSettings:
    """A slot gives up well before the lease of its coordinator has run out."""
    patience_s = max(_SHORTEST_PATIENCE_S, 0.75 * config.lease_ttl_ms / 1000)
    return SlotSettings(beat_s=_beat_s(config), patience_s=patience_s)


def pool_settings(config: StreamsConfig, conf: Any) -> PoolSettings:
    """Slots call the address by which executors reach the driver."""
    host = conf.get("spark.driver.host", "127.0.0.1")
    return PoolSettings(
        timeout_s=config.slot_timeout_ms / 1000,
        beat_s=_beat_s(config),
        bind=conf.get("spark.driver.bindAddress", host),
        host=host,
        tls=tls_files(config),
    )


def slot_assigner(config: StreamsConfig, plan: Plan) -> SlotAssigner:
    """Tasks with logged stores on disk may have copies. Global stores are everywhere already."""
    stateful = {sub.number for level in plan.levels for sub in level if _has_copies(config, sub)}
    rules = AssignmentRules(
        standbys=config.num_standby_replicas,
        acceptable_lag=config.acceptable_recovery_lag,
        max_warmups=config.max_warmup_replicas,
        spread_over=tuple(config.rack_aware_assignment_tags),
    )
    return SlotAssigner(stateful, rules)


def _has_copies(config: StreamsConfig, sub: SubTopology) -> bool:
    """What is in memory is gone when another slot opens it, so a copy of it would be of no use."""
    return not sub.is_global and any(
        spec.logging and supplier_of(spec, config.backend, config.rocksdb_config_setter).persistent
        for spec in sub.stores.values()
    )


def _beat_s(config: StreamsConfig) -> float:
    return min(_LONGEST_BEAT_S, config.lease_ttl_ms / 8000, config.slot_timeout_ms / 8000)
