"""Connections of slots with TLS: encrypted in both directions, and closed to whoever has no certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pyarrow.flight as fl
import pytest
from tests.engine.certificates import HAS_OPENSSL, certificates
from tests.engine.test_resident_protocol import NOW, SECRET, block
from tests.engine.test_resident_slots import running
from tests.spark.lab import Lab
from tests.spark.programs import check_exact, two_levels, words

from millstream import StreamsConfig
from millstream.engine.spark.resident.connection import (
    Connection,
    ConnectionLostError,
    accepted,
    connect,
    flight_token,
)
from millstream.engine.spark.resident.flight import FlightClients, FlightServer, PeerLostError, header_of
from millstream.engine.spark.resident.inbox import Inbox
from millstream.engine.spark.resident.messages import Peer
from millstream.engine.spark.resident.settings import check_settings
from millstream.engine.spark.resident.tls import TlsFiles, tls_files
from millstream.errors import ConfigError

pytestmark = pytest.mark.skipif(not HAS_OPENSSL, reason="certificates are made by openssl")

LONG = bytes(5 << 20)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Of another authority."""
    return certificates(tmp_path_factory.mktemp("tls") / "theirs")


@contextmanager
def listening(tls: TlsFiles) -> Iterator[tuple[tuple[str, int], list[Connection | str]]]:
    """A coordinator that takes one caller in; the connection to it, or why it was refused."""
    seen: list[Connection | str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            try:
                seen.append(accepted(peer, SECRET, "one".__eq__, 5.0, tls)[0])
            except ConnectionLostError as error:
                seen.append(str(error))

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname(), seen
        thread.join(30)
        assert not thread.is_alive()


def closed(seen: list[Connection | str]) -> None:
    for one in seen:
        assert isinstance(one, Connection)
        one.close()


def test_both_sides_send_and_receive_at_the_same_time(ours: TlsFiles) -> None:
    with listening(ours) as (address, seen):
        caller = connect(address, "one", SECRET, 5.0, ours)
    (listener,) = seen
    assert isinstance(listener, Connection)
    received: dict[str, list[object]] = {"caller": [], "listener": []}

    def receive(name: str, connection: Connection) -> None:
        received[name] += [connection.receive() for _ in range(20)]

    def send(connection: Connection) -> None:
        for number in range(20):
            connection.send((number, LONG))

    pairs = [("caller", caller), ("listener", listener)]
    threads = [threading.Thread(target=receive, args=pair) for pair in pairs]
    threads += [threading.Thread(target=send, args=(connection,)) for _, connection in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = [(number, LONG) for number in range(20)]
    assert received == {"caller": expected, "listener": expected}

    threading.Timer(0.05, listener.close).start()
    with pytest.raises(ConnectionLostError):
        caller.receive()
    caller.close()


def test_a_write_to_a_peer_that_reads_nothing_ends_after_a_while(ours: TlsFiles) -> None:
    with listening(ours) as (address, seen):
        caller = connect(address, "one", SECRET, 0.2, ours)
    with pytest.raises(ConnectionLostError, match="nothing was taken"):
        caller.send(bytes(50 << 20))
    caller.close()
    closed(seen)


def test_a_plain_caller_is_refused(ours: TlsFiles) -> None:
    with listening(ours) as (address, seen), socket.create_connection(address) as stranger:
        stranger.sendall(b"\0\0\0\x20" + bytes(32))
        stranger.settimeout(30)
        with suppress(ConnectionResetError):
            while stranger.recv(100):
                pass
    assert [str(why).split(":")[0] for why in seen] == ["there is no TLS with the other side"]


def test_a_caller_without_a_certificate_is_refused_though_it_knows_the_secret(ours: TlsFiles) -> None:
    with listening(ours) as (address, seen), socket.create_connection(address) as peer:
        context = ssl.create_default_context(cafile=ours.authority)
        stranger = context.wrap_socket(peer, server_hostname="127.0.0.1")
        with stranger, pytest.raises(OSError, match="certificate required"):
            stranger.recv(100)
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in str(seen[0])


def test_strangers_on_either_side_are_refused(ours: TlsFiles, theirs: TlsFiles) -> None:
    with listening(theirs) as (address, _), pytest.raises(ConnectionLostError, match="CERTIFICATE_VERIFY"):
        connect(address, "one", SECRET, 5.0, ours)
    with listening(ours) as (address, seen), pytest.raises(ConnectionLostError):
        connect(address, "one", SECRET, 5.0, replace(theirs, authority=ours.authority)).receive()
    assert "CERTIFICATE_VERIFY_FAILED" in str(seen[0])


def test_a_certificate_is_of_the_host_that_was_called_or_of_the_name_that_was_given(tmp_path: Path) -> None:
    named = certificates(tmp_path / "named", made_out_to="DNS:mill", name="mill")
    with listening(named) as (address, seen):
        connect(address, "one", SECRET, 5.0, named).close()
    closed(seen)
    with listening(named) as (address, _), pytest.raises(ConnectionLostError, match="CERTIFICATE_VERIFY"):
        connect(address, "one", SECRET, 5.0, replace(named, name=None))


def test_a_flight_port_refuses_plain_callers_and_those_without_a_certificate(ours: TlsFiles) -> None:
    token, inbox = flight_token(SECRET), Inbox("receiver")
    server = FlightServer("127.0.0.1", token, inbox, ours)
    peer = Peer("receiver", server.location)
    try:
        assert peer.flight.startswith("grpc+tls://")
        clients = FlightClients(token, 30.0, ours)
        clients.put(peer, [block(b"rows")], header_of(NOW, 0, 1, "sender", peer))
        assert inbox.wait(NOW, 0, [1], {1: Peer("sender", "")}) == [block(b"rows")]
        clients.close()

        plain = FlightClients(token, 5.0)
        with pytest.raises(PeerLostError):
            plain.put(
                Peer("receiver", peer.flight.replace("grpc+tls", "grpc")),
                [block(b"rows")],
                header_of(NOW, 0, 2, "sender", peer),
            )
        plain.close()
        bare = fl.FlightClient(peer.flight, tls_root_certs=ours.authority.read_bytes())
        with pytest.raises(fl.FlightUnavailableError):
            list(bare.list_actions(fl.FlightCallOptions(timeout=5)))
        bare.close()
        assert inbox._bundles == {}
    finally:
        server.close()


def settings_of(files: TlsFiles) -> dict[str, Path]:
    return {"tls_certificate": files.certificate, "tls_key": files.key, "tls_ca": files.authority}


def test_an_application_counts_over_encrypted_connections(tmp_path: Path, ours: TlsFiles) -> None:
    lab = Lab(tmp_path / "lab", None)
    lab.topic("in", parts := words(200, seed=9))
    with running(lab, two_levels(), 3, max_records_per_epoch=50, **settings_of(ours)) as app:
        app.run()
        assert app.engine.failures == []
        flights = [member.hello.flight for member in app.engine.pool.live().values()]
        assert [flight.split(":")[0] for flight in flights] == ["grpc+tls"] * 3
    check_exact(lab, "two_levels", parts)


def test_settings_that_can_t_be_kept_are_refused(tmp_path: Path, ours: TlsFiles, theirs: TlsFiles) -> None:
    assert tls_files(StreamsConfig()) is None
    assert tls_files(StreamsConfig(**settings_of(ours))) == ours  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"^tls_key is missing\. Remedy: TLS needs tls_certificate, tls_key"
    ):
        StreamsConfig(tls_certificate=ours.certificate, tls_ca=ours.authority)
    encrypted = {"spark.network.crypto.enabled": "true", "spark.driver.host": "10.0.0.1"}
    check_settings(encrypted, ours)
    for wrong in (tmp_path / "nowhere.key", theirs.key):
        with pytest.raises(ConfigError, match="The files for TLS can't be used on host"):
            check_settings({}, replace(ours, key=wrong))
