"""What the resident engine asks of Spark's settings, and what it makes of the application's."""

from __future__ import annotations

from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.engine.spark.resident.slot import SlotSettings
from millstream.engine.spark.resident.slot_pool import PoolSettings
from millstream.engine.spark.resident.tls import TlsFiles, tls_files
from millstream.errors import ConfigError

_LONGEST_BEAT_S: Final = 1.0
_SHORTEST_PATIENCE_S: Final = 2.0
"""Of a slot: shorter leases are for tests, and a busy machine must not end its slots."""
_LOOPBACK: Final = ("127.", "localhost", "::1")
_ENCRYPTED: Final = ("spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")


def check_settings(conf: Any, tls: TlsFiles | None = None) -> None:
    """Refuse settings of Spark that would end slots, or that promise what slots do not keep."""
    if tls is not None:
        tls.check()
    if _is_on(conf, "spark.python.worker.killOnIdleTimeout"):
        raise ConfigError(
            "spark.python.worker.killOnIdleTimeout is 'true': Spark would end workers that stay, as those of "
            "engine='resident' do. Remedy: leave it 'false', or use engine='jobs'."
        )
    host = conf.get("spark.driver.host", "127.0.0.1")
    encrypted = [name for name in _ENCRYPTED if _is_on(conf, name)]
    if encrypted and tls is None and not host.startswith(_LOOPBACK):
        raise ConfigError(
            f"{encrypted[0]} is 'true', but the connections between slots are not encrypted, and would leave "
            f"this machine ({host}). Remedy: name the files for TLS with StreamsConfig(tls_certificate=..., "
            "tls_key=..., tls_ca=...), or use engine='jobs', whose connections are Spark's own."
        )


def _is_on(conf: Any, name: str) -> bool:
    """Spark takes "True" for true, too, which is how PySpark writes Python's."""
    return str(conf.get(name, "false")).strip().lower() == "true"


def slot_settings(config: StreamsConfig) -> SlotSettings:
    """A slot gives up before the lease of its coordinator has run out, which was renewed a while ago."""
    patience_s = max(_SHORTEST_PATIENCE_S, config.lease_ttl_ms / 2000)
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


def _beat_s(config: StreamsConfig) -> float:
    return min(_LONGEST_BEAT_S, config.lease_ttl_ms / 8000, config.slot_timeout_ms / 8000)
