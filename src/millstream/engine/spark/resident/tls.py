"""TLS between coordinator and slots, and between slots, where certificates are configured.

Both sides show a certificate that the given authority has signed, so nobody without one gets as far as the
proof of the secret. It knows files and sockets, and nothing of what is sent.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError

__all__ = ["TlsFiles", "TlsSocket", "tls_files"]

_CHUNK: Final = 1 << 16
"""So many bytes are written at a time: whoever reads waits no longer than that."""
_LOOKS_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a process finds its certificate, its key, and the authority that signs those of the others."""

    certificate: Path
    key: Path
    authority: Path
    name: str | None = None
    """What the certificates are made out to; None: to the addresses that are called."""

    def listener(self, peer: socket.socket) -> ssl.SSLSocket:
        """The side of a connection that was called."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        return self._filled(context).wrap_socket(peer, server_side=True)

    def caller(self, peer: socket.socket, host: str) -> ssl.SSLSocket:
        """The side of a connection that has called a host."""
        context = self._filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return context.wrap_socket(peer, server_hostname=self.name or host)

    def of_flight_server(self) -> dict[str, Any]:
        """Arguments of a server of Arrow Flight."""
        return {
            "tls_certificates": [(self.certificate.read_bytes(), self.key.read_bytes())],
            "verify_client": True,
            "root_certificates": self.authority.read_bytes(),
        }

    def of_flight_client(self) -> dict[str, Any]:
        """Arguments of a client."""
        return {
            "tls_root_certs": self.authority.read_bytes(),
            "cert_chain": self.certificate.read_bytes(),
            "private_key": self.key.read_bytes(),
            "override_hostname": self.name,
        }

    def check(self) -> None:
        """Refuse files that can't be read, before anything is started."""
        self._filled(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _filled(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except OSError as error:  # an SSLError is one
            raise ConfigError(
                f"The files for TLS can't be used on host {socket.gethostname()}: {error}. They are "
                f"tls_certificate={str(self.certificate)!r}, tls_key={str(self.key)!r} and "
                f"tls_ca={str(self.authority)!r}. Likely cause: they are not there, may not be read, are not "
                "PEM, or the key is not that of the certificate. Remedy: have them at the same paths on all "
                "hosts."
            ) from error
        return context


def tls_files(config: StreamsConfig) -> TlsFiles | None:
    """The files that the settings name; None if connections are not encrypted."""
    certificate, key, authority = config.tls_certificate, config.tls_key, config.tls_ca
    if certificate is None or key is None or authority is None:
        return None
    return TlsFiles(certificate.resolve(), key.resolve(), authority.resolve(), config.tls_name)


class TlsSocket:
    """A connection with TLS that one thread reads while another one writes.

    OpenSSL allows one call at a time. So no call waits: who has to wait does so outside of the lock.
    """

    def __init__(self, peer: ssl.SSLSocket, send_timeout_s: float) -> None:
        self._peer = peer
        self._send_timeout_s = send_timeout_s
        self._guard = threading.Lock()
        self._is_closed = False
        self._descriptor = peer.fileno()
        peer.setblocking(False)

    def getsockname(self) -> Any:
        """The address of this side."""
        return self._peer.getsockname()

    def recv_into(self, view: memoryview) -> int:
        """Read some bytes; 0 at the end."""
        while True:
            with self._guard:
                if self._is_closed:
                    return 0
                try:
                    return self._peer.recv_into(view)
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            self._wait(wanted, _LOOKS_EVERY_S)

    def sendall(self, data: bytes) -> None:
        """Write all. Raises if the other side takes nothing for too long."""
        left = memoryview(data)
        while left:
            with self._guard:
                if self._is_closed:
                    raise OSError("the connection is closed")
                try:
                    left = left[self._peer.send(left[:_CHUNK]) :]
                    continue
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            if not self._wait(wanted, self._send_timeout_s):
                raise TimeoutError(f"nothing was taken for {self._send_timeout_s:g} s")

    def shutdown(self, how: int) -> None:
        """End it in both directions; whoever waits is woken."""
        with self._guard:
            self._is_closed = True
            self._peer.shutdown(how)

    def close(self) -> None:
        """Let go of it."""
        with self._guard:
            self._is_closed = True
            self._peer.close()

    def _wait(self, wanted: int, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, wanted)
        return bool(poll.poll(timeout_s * 1000))
