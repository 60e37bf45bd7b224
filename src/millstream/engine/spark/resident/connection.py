"""A connection between the coordinator and a slot: frames of bounded length, and both sides know a secret.

A frame is its length (4 bytes, big endian) and so many bytes. Before both sides have proved that they know
the secret only frames of a few bytes are read, and nothing is unpickled. The proof is a challenge and an HMAC
in each direction, so the secret itself never travels over the connection. It came in Spark's closure.

1. The listener sends a challenge.
2. The caller sends its incarnation, a challenge of its own, and the HMAC of all three.
3. The listener looks up the incarnation, checks, and sends the HMAC of the same in the other direction.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pyspark.serializers import CPickleSerializer, PickleSerializer

from millstream.engine.spark.resident.tls import TlsFiles, TlsSocket
from millstream.errors import MillstreamError

MAX_FRAME_BYTES: Final = 1 << 30
_MAX_STRANGERS_FRAME: Final = 256
_HANDSHAKE_S: Final = 10.0
_LENGTH: Final = struct.Struct(">I")
_CHALLENGE_BYTES: Final = 32
_TIMEVAL: Final = struct.Struct("ll")
_PICKLE: Final = CPickleSerializer()
_PLAIN: Final = PickleSerializer()


class ConnectionLostError(MillstreamError):
    """The other side is gone, refuses us, or does not keep to the protocol."""


class PeerStalledError(ConnectionLostError):
    """The other side takes nothing any more, though it is there: it stands still."""


class Connection:
    """Messages to and from one authenticated peer. Several threads may send; one receives."""

    def __init__(self, peer: socket.socket, send_timeout_s: float) -> None:
        self._sending = threading.Lock()
        self._peer: socket.socket | TlsSocket = peer
        if isinstance(peer, ssl.SSLSocket):
            self._peer = TlsSocket(peer, send_timeout_s)
            return
        peer.settimeout(None)
        # A peer that stands still reads nothing: to write to it must not last for ever.
        seconds = int(send_timeout_s)
        timeout = _TIMEVAL.pack(seconds, int((send_timeout_s - seconds) * 1e6))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    @property
    def local_address(self) -> str:
        """The address of this side."""
        return str(self._peer.getsockname()[0])

    def send(self, message: object) -> None:
        """Send one message."""
        data = pickled(message)
        with self._sending:
            _send_frame(self._peer, data)

    def ping(self, message: object) -> None:
        """Send a message that says nothing, unless one is on its way: who gets that hears enough."""
        if self._sending.acquire(blocking=False):
            try:
                _send_frame(self._peer, pickled(message))
            finally:
                self._sending.release()

    def receive(self) -> Any:
        """The next message. Raises if there will be none."""
        return _PICKLE.loads(_receive_frame(self._peer, MAX_FRAME_BYTES))

    def close(self) -> None:
        """End it; whoever waits for a message on either side is told."""
        with suppress(OSError):
            self._peer.shutdown(socket.SHUT_RDWR)
        self._peer.close()


def connect(
    address: tuple[str, int],
    incarnation: str,
    secret: bytes,
    send_timeout_s: float,
    tls: TlsFiles | None = None,
) -> Connection:
    """Call a coordinator, as the incarnation of a slot that it expects."""
    try:
        peer = socket.create_connection(address, timeout=_HANDSHAKE_S)
    except OSError as error:
        raise ConnectionLostError(f"no coordinator answers at {address[0]}:{address[1]}: {error}") from error
    if tls is not None:
        peer = _encrypted(peer, partial(tls.caller, host=address[0]))
    with _closed_on_error(peer):
        _without_delay(peer)
        theirs = _receive_frame(peer, _MAX_STRANGERS_FRAME)
        ours = secrets.token_bytes(_CHALLENGE_BYTES)
        name = incarnation.encode()
        _send_frame(peer, ours + _proof(secret, b"slot", theirs, ours, name) + name)
        answer = _receive_frame(peer, _MAX_STRANGERS_FRAME)
        if not hmac.compare_digest(answer, _proof(secret, b"coordinator", theirs, ours, name)):
            raise ConnectionLostError("the coordinator does not know the secret")
    return Connection(peer, send_timeout_s)


def accepted(
    peer: socket.socket,
    secret: bytes,
    is_expected: Callable[[str], bool],
    send_timeout_s: float,
    tls: TlsFiles | None = None,
) -> tuple[Connection, str]:
    """Let a caller in that knows the secret and is an incarnation that is expected; it is closed if not."""
    if tls is not None:
        peer.settimeout(_HANDSHAKE_S)
        peer = _encrypted(peer, tls.listener)
    with _closed_on_error(peer):
        peer.settimeout(_HANDSHAKE_S)
        _without_delay(peer)
        ours = secrets.token_bytes(_CHALLENGE_BYTES)
        _send_frame(peer, ours)
        answer = _receive_frame(peer, _MAX_STRANGERS_FRAME)
        theirs, rest = answer[:_CHALLENGE_BYTES], answer[_CHALLENGE_BYTES:]
        proof, name = rest[:_CHALLENGE_BYTES], rest[_CHALLENGE_BYTES:]
        if not hmac.compare_digest(proof, _proof(secret, b"slot", ours, theirs, name)):
            raise ConnectionLostError("a caller does not know the secret")
        incarnation = name.decode("ascii", errors="replace")
        if not is_expected(incarnation):
            raise ConnectionLostError("a caller is an incarnation that is not expected, or not any more")
        _send_frame(peer, _proof(secret, b"coordinator", ours, theirs, name))
    return Connection(peer, send_timeout_s), incarnation


def pickled(message: object) -> bytes:
    """A message as it is sent: in Python's own way if that will do, for it is many times quicker."""
    try:
        return bytes(_PLAIN.dumps(message))
    except Exception:  # noqa: BLE001 - a class of the user's main program, perhaps
        return bytes(_PICKLE.dumps(message))


def travels(value: object) -> bool:
    """Whether a value can be sent, and is the same kind of thing where it arrives."""
    try:
        return type(_PICKLE.loads(pickled(value))) is type(value)
    except Exception:  # noqa: BLE001 - whatever it is, it does not travel
        return False


def flight_token(secret: bytes) -> str:
    """What slots of one application show each other."""
    return hmac.digest(secret, b"flight", "sha256").hex()


def _proof(secret: bytes, who: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"\0".join([who, *(part.hex().encode() for part in parts)]), "sha256")


def _encrypted(peer: socket.socket, wrap: Callable[[socket.socket], ssl.SSLSocket]) -> ssl.SSLSocket:
    try:
        return wrap(peer)
    except OSError as error:  # an SSLError is one
        peer.close()
        raise ConnectionLostError(f"there is no TLS with the other side: {error}") from error


def _without_delay(peer: socket.socket) -> None:
    """Small frames leave at once: to wait for more costs 40 ms a turn."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _send_frame(peer: socket.socket | TlsSocket, data: bytes) -> None:
    if len(data) > MAX_FRAME_BYTES:
        raise MillstreamError(f"a message of {len(data)} bytes is longer than {MAX_FRAME_BYTES}")
    try:
        peer.sendall(_LENGTH.pack(len(data)) + data)
    except (BlockingIOError, TimeoutError) as error:
        raise PeerStalledError(f"the other side takes nothing any more: {error}") from error
    except OSError as error:
        raise ConnectionLostError(f"the other side is gone: {error}") from error


def _receive_frame(peer: socket.socket | TlsSocket, longest: int) -> bytes:
    (length,) = _LENGTH.unpack(_receive(peer, _LENGTH.size))
    if length > longest:
        raise ConnectionLostError(f"the other side announces {length} bytes, but {longest} are the most")
    return _receive(peer, length)


def _receive(peer: socket.socket | TlsSocket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        try:
            got = peer.recv_into(view)
        except OSError as error:
            raise ConnectionLostError(f"the other side is gone: {error}") from error
        if not got:
            raise ConnectionLostError("the other side has closed the connection")
        view = view[got:]
    return bytes(data)


class _closed_on_error:  # noqa: N801 - used like a function
    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._peer.close()
