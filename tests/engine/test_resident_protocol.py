"""What slots and their coordinator refuse: strangers, what is too long, malformed, or of another attempt."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as fl
import pytest

from millstream.engine.spark.resident import bundles
from millstream.engine.spark.resident.bundles import (
    CHUNK_BYTES,
    MAX_BUNDLE_BYTES,
    SCHEMA,
    BadBundleError,
    BundleHeader,
    packed,
    unpacked,
)
from millstream.engine.spark.resident.connection import (
    Connection,
    ConnectionLostError,
    accepted,
    connect,
    flight_token,
)
from millstream.engine.spark.resident.flight import FlightClients, FlightServer, PeerLostError, header_of
from millstream.engine.spark.resident.inbox import AbortedError, Inbox
from millstream.engine.spark.resident.messages import Beat, EpochAttempt, Peer
from millstream.engine.spark.resident.settings import check_settings
from millstream.engine.spark.resident.slot import SlotSettings
from millstream.engine.spark.resident.slot_function import SlotFunction
from millstream.errors import ConfigError
from millstream.task.shuffle_block import ShuffleBlock
from millstream.types import Attempt, Epoch, Partition, Term

SECRET = bytes(range(32))
NOW = EpochAttempt(Term(2), Attempt(7), Epoch(9))
LATER = EpochAttempt(Term(2), Attempt(8), Epoch(9))


def block(payload: bytes, partition: int = 0) -> ShuffleBlock:
    counts = ((Partition(partition), 3),)
    return ShuffleBlock("topic", 0, "0_1", Attempt(7), payload, counts, (("store", "key", "str"),))


def header(
    of: EpochAttempt = NOW, *, to: str = "receiver", sender: str = "sender", **sizes: Any
) -> BundleHeader:
    make = header_of(of, 0, 1, sender, Peer(to, ""))
    return make(sizes.get("chunks", 1), sizes.get("size", 1), sizes.get("digest", ""))


# Connections ------------------------------------------------------------------------------------------------


@contextmanager
def listening(secret: bytes, expected: str) -> Iterator[tuple[tuple[str, int], list[object]]]:
    """A coordinator that takes one caller in; what came of it."""
    seen: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            try:
                connection, name = accepted(peer, secret, expected.__eq__, 5.0)
                seen.extend([name, connection.receive()])
                connection.close()
            except ConnectionLostError as error:
                seen.append(str(error))

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname(), seen
        thread.join(30)
        assert not thread.is_alive()


def test_a_caller_that_knows_the_secret_and_is_expected_is_heard() -> None:
    with listening(SECRET, "one") as (address, seen):
        connection = connect(address, "one", SECRET, 5.0)
        connection.send(Beat())
    connection.close()
    assert seen == ["one", Beat()]


@pytest.mark.parametrize(
    ("secret", "name", "why"),
    [
        (b"another", "one", "a caller does not know the secret"),
        (SECRET, "two", "a caller is an incarnation that is not expected, or not any more"),
    ],
)
def test_a_stranger_and_a_fenced_incarnation_are_refused(secret: bytes, name: str, why: str) -> None:
    with listening(SECRET, "one") as (address, seen), pytest.raises(ConnectionLostError):
        connect(address, name, secret, 5.0)
    assert seen == [why]


def test_a_caller_that_announces_a_long_frame_before_it_is_known_is_refused_unread() -> None:
    with listening(SECRET, "one") as (address, seen), socket.create_connection(address) as stranger:
        stranger.recv(100)
        stranger.sendall(struct.pack(">I", 1 << 29))
        assert stranger.recv(100) == b""
    assert seen == [f"the other side announces {1 << 29} bytes, but 256 are the most"]


def test_a_slot_does_not_obey_a_coordinator_that_does_not_know_the_secret() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def pretend() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(struct.pack(">I", 32) + bytes(32))
                peer.recv(200)
                peer.sendall(struct.pack(">I", 32) + bytes(32))

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(ConnectionLostError, match="the coordinator does not know the secret"):
            connect(server.getsockname(), "one", SECRET, 5.0)
        thread.join()


def test_a_write_to_a_peer_that_reads_nothing_ends_after_a_while() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(ConnectionLostError):
        Connection(ours, 0.05).send(bytes(50 << 20))


def test_secrets_are_in_no_text() -> None:
    function = SlotFunction(("127.0.0.1", 1), "one", lambda: None, 1.0, SlotSettings(), SECRET)  # type: ignore[arg-type, return-value]
    for text in (repr(function), str(function)):
        assert repr(SECRET) not in text
        assert SECRET.hex() not in text


# Bundles ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [[], [block(b"")], [block(b"rows"), block(bytes(3 * CHUNK_BYTES), 1)]])
def test_a_bundle_arrives_as_it_was_sent(blocks: list[ShuffleBlock]) -> None:
    chunks, size, digest = packed(blocks)
    assert unpacked(header(chunks=len(chunks), size=size, digest=digest), chunks) == blocks


def test_a_bundle_that_is_not_what_its_header_says_is_refused() -> None:
    chunks, size, digest = packed([block(b"rows"), block(b"more")])
    right: dict[str, Any] = {"chunks": len(chunks), "size": size, "digest": digest}
    for wrong in ({"size": size - 1}, {"size": size + 1}, {"chunks": 1}, {"chunks": 3}, {"digest": "other"}):
        with pytest.raises(BadBundleError):
            unpacked(header(**{**right, **wrong}), chunks)
    garbage = pa.record_batch([pa.array([b"\xff" * 9], pa.large_binary())], schema=SCHEMA)
    with pytest.raises(BadBundleError):
        unpacked(header(**right), [garbage, *chunks[1:]])
    two_rows = pa.record_batch([pa.array([b"a", b"b"], pa.large_binary())], schema=SCHEMA)
    with pytest.raises(BadBundleError):
        unpacked(header(**right), [chunks[0], two_rows])


def test_a_chunk_that_is_longer_than_one_may_be_is_refused_though_it_was_announced() -> None:
    data = bytes(CHUNK_BYTES + 1)
    first, *_ = packed([block(data)])[0]
    long = pa.record_batch([pa.array([data], pa.large_binary())], schema=SCHEMA)
    directory = first.column(0)[0].as_py()
    size, digest = len(directory) + len(data), packed([block(data)])[2]
    with pytest.raises(BadBundleError, match="malformed"):
        unpacked(header(chunks=2, size=size, digest=digest), [first, long])


def test_a_directory_that_is_longer_than_one_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, size, digest = packed([block(b"rows")])
    announced = header(chunks=len(chunks), size=size, digest=digest)
    assert len(unpacked(announced, chunks)) == 1
    monkeypatch.setattr(bundles, "DIRECTORY_BYTES", size - len(b"rows") - 1)
    with pytest.raises(BadBundleError, match="malformed"):
        unpacked(announced, chunks)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode(header(chunks=1, size=MAX_BUNDLE_BYTES + 1)),
        msgspec.msgpack.encode(header(chunks=1_000_000, size=10)),
        msgspec.msgpack.encode(header(chunks=0, size=10)),
    ],
)
def test_a_header_that_is_none_or_announces_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(BadBundleError):
        BundleHeader.decoded(data)


# Flight -----------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[Inbox, Peer]]:
    inbox = Inbox("receiver")
    server = FlightServer("127.0.0.1", flight_token(SECRET), inbox)
    yield inbox, Peer("receiver", server.location)
    server.close()


def test_a_bundle_goes_from_slot_to_slot(served: tuple[Inbox, Peer]) -> None:
    inbox, peer = served
    clients = FlightClients(flight_token(SECRET), 30.0)
    sent = [block(b"rows"), block(bytes(2 * CHUNK_BYTES), 1)]
    clients.put(peer, sent, header_of(NOW, 0, 1, "sender", peer))
    assert inbox.wait(NOW, 0, [1], {1: Peer("sender", "")}) == sent
    clients.close()


@pytest.mark.parametrize("token", ["", "wrong", flight_token(b"another")])
def test_a_caller_without_the_token_is_refused(served: tuple[Inbox, Peer], token: str) -> None:
    _, peer = served
    clients = FlightClients(token, 30.0)
    with pytest.raises(PeerLostError):
        clients.put(peer, [block(b"rows")], header_of(NOW, 0, 1, "sender", peer))
    bare = fl.connect(peer.flight)
    with pytest.raises(fl.FlightUnauthenticatedError):
        list(bare.list_actions())
    bare.close()


def test_an_oversized_bundle_is_refused_while_it_comes(served: tuple[Inbox, Peer]) -> None:
    inbox, peer = served
    clients = FlightClients(flight_token(SECRET), 30.0)
    with pytest.raises(PeerLostError, match="larger than announced"):
        clients.put(peer, [block(b"rows")], lambda chunks, size, digest: header(chunks=chunks, size=size - 1))
    with pytest.raises(PeerLostError, match="not allowed"):
        clients.put(peer, [], lambda chunks, size, digest: header(chunks=chunks, size=MAX_BUNDLE_BYTES + 1))
    clients.close()
    assert inbox._bundles == {}


OTHER_SCHEMA = pa.schema([("number", pa.int64())])
MALFORMED = {
    "a header that is none": (b"\xc1", [], SCHEMA),
    "a long header": (bytes(5_000), [], SCHEMA),
    "other columns": (header(size=8), [pa.record_batch([pa.array([1])], schema=OTHER_SCHEMA)], OTHER_SCHEMA),
    "no bytes": (
        header(size=0),
        [pa.record_batch([pa.array([None], pa.large_binary())], schema=SCHEMA)],
        SCHEMA,
    ),
    "a directory that is none": (
        header(size=9),
        [pa.record_batch([pa.array([b"\xff" * 9], pa.large_binary())], schema=SCHEMA)],
        SCHEMA,
    ),
    "less than announced": (header(size=10), [], SCHEMA),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_bundle_is_refused_and_the_next_one_is_taken(
    served: tuple[Inbox, Peer], name: str
) -> None:
    inbox, peer = served
    command, batches, schema = MALFORMED[name]
    data = command if isinstance(command, bytes) else msgspec.msgpack.encode(command)
    token = [(b"authorization", flight_token(SECRET).encode())]
    caller = fl.FlightClient(peer.flight)
    with pytest.raises(fl.FlightError):  # noqa: PT012 - which call is told depends on the network
        writer, _ = caller.do_put(
            fl.FlightDescriptor.for_command(data), schema, fl.FlightCallOptions(timeout=30.0, headers=token)
        )
        with writer:
            for batch in batches:
                writer.write_batch(batch)
    caller.close()
    assert inbox._bundles == {}
    clients = FlightClients(flight_token(SECRET), 30.0)
    clients.put(peer, [block(b"rows")], header_of(NOW, 0, 1, "sender", peer))
    clients.close()
    assert inbox.wait(NOW, 0, [1], {1: Peer("sender", "")}) == [block(b"rows")]


# The inbox --------------------------------------------------------------------------------------------------


def test_bundles_of_attempts_that_are_over_are_dropped() -> None:
    inbox = Inbox("receiver")
    inbox.put(header(NOW), [block(b"old")])
    inbox.put(header(LATER), [block(b"new")])
    inbox.end(NOW)
    assert not inbox.accepts(header(NOW))
    inbox.put(header(NOW), [block(b"old")])
    with pytest.raises(AbortedError):
        inbox.wait(NOW, 0, [1], {1: Peer("sender", "")})
    assert inbox.wait(LATER, 0, [1], {1: Peer("sender", "")}) == [block(b"new")]


def test_bundles_of_another_incarnation_are_dropped() -> None:
    inbox = Inbox("receiver")
    assert not inbox.accepts(header(to="somebody before"))
    inbox.put(header(sender="fenced"), [block(b"old")])
    thread = threading.Timer(0.05, inbox.put, [header(sender="sender"), [block(b"new")]])
    thread.start()
    assert inbox.wait(NOW, 0, [1], {1: Peer("sender", "")}) == [block(b"new")]


def test_the_same_bundle_twice_is_one() -> None:
    inbox = Inbox("receiver")
    for payload in (b"first", b"again"):
        inbox.put(header(), [block(payload)])
    assert inbox.wait(NOW, 0, [1], {1: Peer("sender", "")}) == [block(b"first")]


def test_whoever_waits_is_told_when_the_attempt_is_given_up() -> None:
    inbox = Inbox("receiver")
    threading.Timer(0.05, inbox.end, [NOW]).start()
    with pytest.raises(AbortedError):
        inbox.wait(NOW, 0, [1], {1: Peer("sender", "")})


# Settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        ({"spark.python.worker.killOnIdleTimeout": "true"}, "Spark would end workers that stay"),
        ({"spark.python.worker.killOnIdleTimeout": "True"}, "Spark would end workers that stay"),
        (
            {"spark.network.crypto.enabled": "true", "spark.driver.host": "10.0.0.1"},
            "the connections between slots are not encrypted",
        ),
    ],
)
def test_settings_of_spark_that_do_not_go_with_slots_are_refused(conf: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check_settings(conf)


def test_other_settings_are_fine() -> None:
    check_settings({"spark.network.crypto.enabled": "true", "spark.driver.host": "127.0.0.1"})
