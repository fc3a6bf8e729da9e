"""`state` and `usage.path`: whether the gateway could write these files. Nothing is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from gateway.runtime.file_trust import ForeignFileError, real_path, require_all_own, trusted_users
from gateway.settings.yaml.findings import Findings
from gateway.settings.yaml.tree import Node

LONGEST_NAME: Final = 255 - len(".handover")
"""Longest name of the state file in bytes: NAME_MAX of Linux, less the longest suffix beside it."""


def check_state_path(path: str | None, node: Node | None, findings: Findings) -> None:
    """Report why the state file or a database could not be written, before the first change is lost."""
    if path is None or node is None or not findings.check_files:
        return
    try:
        real = real_path(path, trusted_users())
    except ForeignFileError as problem:
        _warn_of_others(node, str(problem), findings)
        return
    if len(os.fsencode(real.name)) > LONGEST_NAME:
        findings.bad_value(node, "this name is too long for the files beside it", "choose a shorter one")
        return
    try:
        mode = real.stat().st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    except OSError:
        mode = 0  # nobody knows
    if mode and not stat.S_ISREG(mode):
        findings.bad_value(node, "this is no regular file", "name a file of its own for it")
        return
    folder = real.parent
    try:
        is_folder = folder.is_dir()
    except OSError:
        is_folder = True  # nobody knows: it cannot be looked at
    if not is_folder:
        findings.bad_value(node, "the folder of this file does not exist", "make it, or name another")
    elif mode == 0 or not os.access(folder, os.W_OK | os.X_OK):
        hint = "run `check` as the user of the gateway, and give that user the folder"
        findings.warn(node, "not-writable", "this user cannot write the folder of this file", hint)
    elif foreign := _foreign(real):
        message = f"this user cannot use {foreign}, which belongs to another one"
        hint = "run `check` as the user of the gateway, and give that user the files whose names begin so"
        findings.warn(node, "not-writable", message, hint)
    else:
        _check_others(real, node, findings)


def _check_others(state: Path, node: Node, findings: Findings) -> None:
    """Warn of other users who could change the state file. The gateway may run as the owner of its folder."""
    folder, users = state.parent, trusted_users()
    if folder.stat().st_mode & stat.S_IWOTH:
        message = f"every user may write {folder}, and so put a file there that the gateway would use"
        _warn_of_others(node, message, findings)
    else:
        users = trusted_users(folder.stat().st_uid)
    try:
        require_all_own([state.with_name(state.name + each) for each in ("", ".lock", ".handover")], users)
    except ForeignFileError as problem:
        _warn_of_others(node, str(problem), findings)


def _warn_of_others(node: Node, message: str, findings: Findings) -> None:
    hint = "name a file in a folder that only the user of the gateway may write"
    findings.warn(node, "untrusted", message, hint)


def _foreign(state: Path) -> Path | None:
    """The state file or its lock, if this user may not use it, as after a start as root; None: neither."""
    lock = state.with_name(f"{state.name}.lock")
    needed = ((state, os.R_OK), (lock, os.R_OK | os.W_OK))
    there = ((path, use) for path, use in needed if os.access(path, os.F_OK))
    return next((path for path, use in there if not os.access(path, use)), None)
