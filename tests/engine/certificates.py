"""Certificates for tests, made by the program `openssl`: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from millstream.engine.spark.resident.tls import TlsFiles

HAS_OPENSSL: Final = shutil.which("openssl") is not None
_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def certificates(folder: Path, made_out_to: str = "IP:127.0.0.1", name: str | None = None) -> TlsFiles:
    """A certificate of a host, signed by an authority of its own."""
    folder.mkdir()
    files = TlsFiles(folder / "host.pem", folder / "host.key", folder / "ca.pem", name)
    authority_key, request, extensions = folder / "ca.key", folder / "host.csr", folder / "extensions"
    extensions.write_text(f"subjectAltName={made_out_to}\n")
    _openssl("req", "-x509", *_NEW_KEY, "-keyout", authority_key, "-out", files.authority, "-subj", "/CN=ca")
    _openssl("req", "-new", *_NEW_KEY, "-keyout", files.key, "-out", request, "-subj", "/CN=host")
    signed = ("x509", "-req", "-in", request, "-CA", files.authority, "-CAkey", authority_key)
    _openssl(*signed, "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", files.certificate)
    return files


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
