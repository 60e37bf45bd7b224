"""The topologies of the golden cases by name: a function per case, registered by a decorator."""

from __future__ import annotations

from collections.abc import Callable

from millstream import StreamsBuilder, Topology

TOPOLOGIES: dict[str, Callable[[], Topology]] = {}


def dsl(body: Callable[[StreamsBuilder], object]) -> Callable[[StreamsBuilder], object]:
    """Register a case of the DSL under the function's name."""
    case(body.__name__, body)
    return body


def case(name: str, body: Callable[[StreamsBuilder], object]) -> None:
    """Register a case of the DSL under a name."""

    def build() -> Topology:
        builder = StreamsBuilder()
        body(builder)
        return builder.build()

    register(name, build)


def papi(body: Callable[[Topology], object]) -> Callable[[Topology], object]:
    """Register a case of the Processor API under the function's name."""

    def build() -> Topology:
        topology = Topology()
        body(topology)
        return topology

    register(body.__name__, build)
    return body


def before_and_after(
    optimization: str,
) -> Callable[[Callable[[StreamsBuilder], object]], Callable[[StreamsBuilder], object]]:
    """Register a topology of the DSL twice: as it is, and with an optimization."""

    def registered(body: Callable[[StreamsBuilder], object]) -> Callable[[StreamsBuilder], object]:
        def build(optimization: str) -> Topology:
            builder = StreamsBuilder()
            body(builder)
            return builder.build(optimization=optimization)

        register(f"{body.__name__}_before", lambda: build("none"))
        register(f"{body.__name__}_after", lambda: build(optimization))
        return body

    return registered


def register(name: str, build: Callable[[], Topology]) -> None:
    """Register a case under a name."""
    assert name not in TOPOLOGIES, f"two cases are called {name}"
    TOPOLOGIES[name] = build
