"""Bundles over Arrow Flight: a server in each slot that takes them in, and a client that sends them.

The server listens on the slot's own address, and takes nothing but bundles, from callers that show the token
of the application. A call has a time-out, so that a peer that stands still holds nobody up for ever.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.flight as fl

from millstream.engine.spark.resident.bundles import SCHEMA, BadBundleError, BundleHeader, packed, unpacked
from millstream.engine.spark.resident.inbox import Inbox
from millstream.engine.spark.resident.messages import EpochAttempt, Peer
from millstream.engine.spark.resident.tls import TlsFiles
from millstream.errors import MillstreamError
from millstream.task.shuffle_block import ShuffleBlock

_HEADER: Final = "authorization"
_MAX_HEADER_BYTES: Final = 4096


class PeerLostError(MillstreamError):
    """Another slot could not be reached: the epoch is run again."""


class FlightServer:
    """Takes bundles of other slots into an inbox."""

    def __init__(self, address: str, token: str, inbox: Inbox, tls: TlsFiles | None = None) -> None:
        host = f"[{address}]" if ":" in address else address
        scheme, encryption = ("grpc", {}) if tls is None else ("grpc+tls", tls.of_flight_server())
        middleware = {"token": _CheckToken(token)}
        self._server = _Server(f"{scheme}://{host}:0", inbox, middleware=middleware, **encryption)
        self.location = f"{scheme}://{host}:{self._server.port}"

    def close(self) -> None:
        """Take nothing more."""
        self._server.shutdown()


class _Server(fl.FlightServerBase):  # type: ignore[misc]
    def __init__(self, location: str, inbox: Inbox, **options: Any) -> None:
        super().__init__(location, **options)
        self._inbox = inbox

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        del context, writer
        command = descriptor.command or b""
        if len(command) > _MAX_HEADER_BYTES:
            raise fl.FlightServerError("the header of a bundle is too long")
        try:
            header = BundleHeader.decoded(command)
            if self._inbox.accepts(header):
                self._inbox.put(header, unpacked(header, _batches(reader)))
        except BadBundleError as error:
            raise fl.FlightServerError(str(error)) from error


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            yield reader.read_chunk().data
        except StopIteration:
            return


class _CheckToken(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def start_call(self, info: Any, headers: Any) -> None:
        del info
        shown = headers.get(_HEADER, [""])
        if len(shown) != 1 or not hmac.compare_digest(str(shown[0]).encode(), self._token.encode()):
            raise fl.FlightUnauthenticatedError("no token, or a wrong one")


class FlightClients:
    """Sends bundles to other slots; keeps the connections."""

    def __init__(self, token: str, timeout_s: float, tls: TlsFiles | None = None) -> None:
        self._encryption = {} if tls is None else tls.of_flight_client()
        self._options = fl.FlightCallOptions(timeout=timeout_s, headers=[(_HEADER.encode(), token.encode())])
        self._clients: dict[str, Any] = {}

    def put(
        self,
        to: Peer,
        blocks: Sequence[ShuffleBlock],
        header: Callable[[int, int, str], BundleHeader],
    ) -> None:
        """Send blocks. `header` is given chunks, bytes and digest."""
        chunks, size, digest = packed(blocks)
        command = msgspec.msgpack.encode(header(len(chunks), size, digest))
        try:
            client = self._clients.get(to.flight)
            if client is None:
                client = self._clients[to.flight] = fl.FlightClient(to.flight, **self._encryption)
            writer, _ = client.do_put(fl.FlightDescriptor.for_command(command), SCHEMA, self._options)
            with writer:
                for chunk in chunks:
                    writer.write_batch(chunk)
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            self.forget(to.flight)
            raise PeerLostError(f"the slot at {to.flight} could not be reached: {error}") from error

    def keep_only(self, locations: Sequence[str]) -> None:
        """Forget slots that are gone."""
        for location in self._clients.keys() - set(locations):
            self.forget(location)

    def forget(self, location: str) -> None:
        """Close the connection to a slot."""
        client = self._clients.pop(location, None)
        if client is not None:
            with suppress(Exception):
                client.close()

    def close(self) -> None:
        """Close all connections."""
        self.keep_only([])


def header_of(
    attempt: EpochAttempt, level: int, sender: int, incarnation: str, to: Peer
) -> Callable[[int, int, str], BundleHeader]:
    """Makes the header of a bundle when its size is known."""

    def header(chunks: int, size: int, digest: str) -> BundleHeader:
        return BundleHeader(
            attempt.term,
            attempt.epoch,
            attempt.attempt,
            level,
            sender,
            incarnation,
            to.incarnation,
            chunks,
            size,
            digest,
        )

    return header
