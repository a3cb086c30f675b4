"""A folder with the points of a sweep that are done: `inputs.json` says of what, `points.jsonl` has a line a point, only ever added to."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

from passcal.errors import SpecError
from passcal.refining import Record

__all__ = ["Checkpoint"]

SYNC_S = 1.0  # what a crash of the machine, not of the process, may cost


class Checkpoint:
    """Open it, take what is `done`, `add` what becomes done, and close it.

    A line is written with one call, so a process that is killed leaves at most one line cut short, the last; that is dropped.
    """

    def __init__(self, folder: str | os.PathLike[str], inputs: Mapping[str, str]) -> None:
        """Args:
            folder: made if it is not there.
            inputs: digests of what the points depend on, by name.

        Raises:
            SpecError: it holds points of other inputs, or cannot be written.
        """
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._claim(dict(inputs))
            self.done = self._read()
            self._file = os.open(self.points, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            raise SpecError(f"checkpoint {folder}: {error.strerror}; name another folder"[:199]) from None
        self._synced = time.monotonic()

    @property
    def points(self) -> Path:
        """The file of points."""
        return self.folder / "points.jsonl"

    def _claim(self, inputs: dict[str, str]) -> None:
        """Say whose points these are, or see that they are ours."""
        file = self.folder / "inputs.json"
        if not file.exists():
            beside = file.with_name(f".{file.name}.{os.getpid()}.part")
            with beside.open("w", encoding="utf-8") as out:
                json.dump(inputs, out, indent=2)
                out.flush()
                os.fsync(out.fileno())
            beside.replace(file)
            self.points.unlink(missing_ok=True)
            return
        try:
            kept = json.loads(file.read_bytes())
            changed = [name for name in {**kept, **inputs} if kept.get(name) != inputs.get(name)]
        except (ValueError, TypeError):
            raise SpecError(f"checkpoint {self.folder}: inputs.json cannot be read; remove the folder"[:199]) from None
        if changed:
            raise SpecError(
                f"checkpoint {str(self.folder)[-60:]}: {', '.join(changed)} changed since it was written; remove it, or name another"
            )

    def _read(self) -> dict[int, Record]:
        """Points by row, up to the first line that was not finished; the file ends there from now on."""
        done: dict[int, Record] = {}
        if not self.points.exists():
            return done
        text, whole = self.points.read_bytes(), 0
        for line in text.split(b"\n")[:-1]:
            try:
                row, *record = json.loads(line)
                done[int(row)] = Record(*record)
            except (ValueError, TypeError):
                break
            whole += len(line) + 1
        if whole < len(text):
            os.truncate(self.points, whole)
        return done

    def add(self, records: Mapping[int, Record]) -> None:
        """Keep these points."""
        self.done.update(records)
        lines = "".join(json.dumps([row, *record]) + "\n" for row, record in records.items())
        written, data = 0, lines.encode()
        while written < len(data):
            written += os.write(self._file, data[written:])
        if time.monotonic() - self._synced > SYNC_S:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def close(self) -> None:
        """Put everything on disk."""
        os.fsync(self._file)
        os.close(self._file)
