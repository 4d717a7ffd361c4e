"""The server that a program means: an argument, else the environment, else the settings of the user or the machine.

The same order and the same files as the command has: `FRIEZE_SERVER` and `FRIEZE_KEY`, then the file that
`FRIEZE_CLIENT` names, then `frieze/client.toml` in `$XDG_CONFIG_HOME` (or `~/.config`) and in `/etc`.
"""

from __future__ import annotations

import os
import pathlib
import tomllib

SERVER_DEFAULT = "127.0.0.1:7470"


def server_and_key(server: str | None, key: str | os.PathLike | None) -> tuple[str, str | None]:
    """The server's address, and the file with its key, if there is any."""
    server = server or os.environ.get("FRIEZE_SERVER")
    named = os.fspath(key) if key is not None else os.environ.get("FRIEZE_KEY")
    settings, directory = ({}, None) if server and named else _settings()
    if not named and "key" in settings:
        named = str(directory / settings["key"])
    return server or settings.get("server", SERVER_DEFAULT), named or None


def _settings() -> tuple[dict, pathlib.Path | None]:
    for file, has_to_exist in _places():
        try:
            text = file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            if has_to_exist:
                raise
            continue
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{file} is wrong: {error}") from error
        unknown = set(settings) - {"server", "key"}
        if unknown:
            raise ValueError(f"{file} is wrong: it has {', '.join(sorted(unknown))}, but only server and key are known")
        return settings, file.parent
    return {}, None


def _places():
    if "FRIEZE_CLIENT" in os.environ:
        return [(pathlib.Path(os.environ["FRIEZE_CLIENT"]), True)] if os.environ["FRIEZE_CLIENT"] else []
    own = pathlib.Path(os.environ.get("XDG_CONFIG_HOME") or "")
    if not own.is_absolute():
        own = pathlib.Path(os.environ.get("HOME") or "/nonexistent") / ".config"
    return [(directory / "frieze/client.toml", False) for directory in (own, pathlib.Path("/etc"))]
