"""What can go wrong with files: all are DurableFileErrors."""

from __future__ import annotations

from millstream.errors import MillstreamError


class DurableFileError(MillstreamError):
    """A file or folder could not be used as asked."""


class DiskFullError(DurableFileError):
    """No space or quota left. What was being written was not acknowledged and is not visible."""


class AccessDeniedError(DurableFileError):
    """The system refuses to read or write a file or folder: forbidden, read-only, or not a folder at all."""


class UnsafeFolderError(DurableFileError):
    """The folder belongs to somebody else, or others may write into it."""


class UnsuitableStorageError(DurableFileError):
    """The storage cannot create files exclusively or cannot hard-link."""


class LockTimeoutError(DurableFileError):
    """Another process (named in the message) held a lock for longer than we were willing to wait."""


class DamagedFileError(DurableFileError):
    """Bytes on disk are not what was written. The message names the file and the place."""


class FormatVersionError(DamagedFileError):
    """The bytes are intact, but another version of Millstream wrote them."""
