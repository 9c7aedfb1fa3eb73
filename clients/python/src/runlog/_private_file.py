"""Reads files of secrets: tokens and private keys. The server and the command have the same rule, in
`log/src/private_file.rs`."""

from __future__ import annotations

import os
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from .errors import Usage


def read_private(path: str | os.PathLike[str], what: str, bytes_max: int) -> bytes:
    """Reads a file that only its owner may use; `what` names it in errors. A group may also read a file of root's (mode 440
    or 640), since Kubernetes mounts a Secret in that way. No folder on its path may be writable for all users, except with the
    sticky bit. On Windows permissions are not checked.

    Errors: `Usage` if it cannot be read, is longer than `bytes_max` bytes, or may be used or replaced by others."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix" and status.st_mode & (0o037 if status.st_uid == 0 else 0o077):
                mode = f"{status.st_mode & 0o777:o}"
                raise Usage(
                    f"other users may use the {what} {path} (mode {mode}); remove this permission with chmod 600"
                )
            # A pipe, such as a shell's `<(…)`, is in no folder.
            if os.name == "posix" and stat.S_ISREG(status.st_mode) and (folder := _writable_folder(Path(path))):
                raise Usage(
                    f"other users may replace the {what} {path}; remove this permission with chmod o-w {shlex.quote(str(folder))}"
                )
            content = file.read(bytes_max + 1)
        if len(content) > bytes_max:
            raise Usage(f"the {what} {path} is longer than {bytes_max} bytes")
        return content
    except (OSError, ValueError) as error:
        # A path with NUL is a ValueError.
        raise Usage(f"the {what} {path} cannot be read: {error}") from error


def _writable_folder(path: Path) -> Path | None:
    """The folder in which every user could replace the file: on its path, or on the path of the file that a link names."""
    for start in (path.absolute().parent, path):
        # A deleted file cannot be replaced.
        with suppress(FileNotFoundError):
            real = start.resolve(strict=True)
            for folder in (real, *real.parents):
                mode = folder.stat().st_mode
                if stat.S_ISDIR(mode) and mode & 0o1002 == 0o0002:
                    return folder
    return None
