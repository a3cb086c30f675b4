"""The file under a trace: its bytes unpacked, its text made regular, and how a refusal names it."""

import gzip
import os
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from passcal.errors import TraceError

__all__ = ["Source", "load", "shown"]

GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LABEL_CHARS, VALUE_CHARS = 50, 30


def shown(value: object) -> str:
    """A value as a message shows it: text in quotes, everything on one line, clipped."""
    text = repr(value) if isinstance(value, str) else " ".join(str(value).split())
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."


@dataclass(frozen=True)
class Source:
    """The content of one trace file.

    Attributes:
        label: the path as messages show it, clipped to its end.
        data: the bytes, already unpacked when the file was gzip.
    """

    label: str
    data: bytes

    def refusal(self, problem: str, line: int | None = None, unit: str = "line") -> TraceError:
        """The error that names this file, the line (from 1; none where the whole file is meant) and the problem."""
        where = self.label if line is None else f"{self.label}, {unit} {line}"
        return TraceError(f"{where}: {problem}")

    @property
    def is_parquet(self) -> bool:
        """Whether the bytes carry Parquet's magic."""
        return self.data.startswith(PARQUET)

    @cached_property
    def text(self) -> bytes:
        r"""The bytes as UTF-8 without byte order mark, lines ended by `\n` alone, no blank lines at the end.

        Raises:
            TraceError: not UTF-8, a NUL byte, a carriage return within a line, or nothing in the file.
        """
        data = self.data.removeprefix(BYTE_ORDER_MARK)
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
            raise self.refusal(byte, data.count(b"\n", 0, error.start) + 1) from None
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        for stray, name in ((b"\0", "a NUL byte"), (b"\r", "a carriage return without line feed")):
            if (at := data.find(stray)) >= 0:
                raise self.refusal(f"{name} in text; save the file with plain line ends", data.count(b"\n", 0, at) + 1)
        data = data.rstrip(b"\n")
        if not data.strip():
            raise self.refusal("the file is empty; a trace needs at least one request")
        return data + b"\n"


def load(path: str | os.PathLike[str]) -> Source:
    """Read a file whole and unpack it when it is gzip (by its first bytes, or by a name that ends in `.gz`).

    Raises:
        TraceError: no such file, a directory, unreadable, or a gzip stream that is cut short or damaged.
    """
    name = os.fspath(path)
    tail = name if len(name) <= LABEL_CHARS else "..." + name[3 - LABEL_CHARS :]
    label = "".join(letter if letter.isprintable() else "?" for letter in tail)
    try:
        data = Path(name).read_bytes()
    except FileNotFoundError:
        raise TraceError(f"{label}: no such file; check the path") from None
    except IsADirectoryError:
        raise TraceError(f"{label}: is a directory; name one trace file") from None
    except (OSError, ValueError) as error:
        raise TraceError(
            f"{label}: cannot be read ({shown(getattr(error, 'strerror', error))}); check the path"
        ) from None
    if data.startswith(GZIP) or name.endswith(".gz"):
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise TraceError(f"{label}: the gzip stream is cut short; fetch the file again") from None
        except (OSError, zlib.error):
            raise TraceError(f"{label}: not a sound gzip stream; fetch it again, or drop .gz from the name") from None
    return Source(label, data)
