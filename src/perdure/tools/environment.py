"""The environment of commands: nothing asks, nothing pages, nothing opens, and no key leaks. Pure.

A prompt that nobody can answer must fail, and say so. Editors fail as well instead of doing nothing:
with a no-op editor `git rebase -i` would rewrite history with the default list, and `git commit
--amend` would take a message nobody has seen.

Left out on purpose: ``CI`` (it changes what builds do: frozen lock files, warnings as errors),
answers of "yes" (`npx` installing packages is not ours to agree to), and ``GIT_SSH_COMMAND`` where
the person has none (it would override the key that `core.sshCommand` of a repository names; without
a terminal, and with a failing askpass, ssh can't ask anyway).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_NO_EDITOR = (
    'sh -c \'echo "no editor here: use an option (-m, -F, --no-edit), or set GIT_EDITOR to a command" '
    ">&2; exit 1'"
)
_NO_LIST_EDITOR = (
    "sh -c 'echo \"no editor here: set GIT_SEQUENCE_EDITOR to a command that edits the list\" >&2; exit 1'"
)
#: Without a terminal Vim says so, and waits for ever. This ends it with an error, and runs after its
#: `-c` commands, so that `vim -c ... -c wq` and `vim -es` work as they should.
_VIM_STARTS = "autocmd VimEnter * cquit"

_QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "AWS_PAGER": "",
    "GH_PAGER": "cat",
    "GH_PROMPT_DISABLED": "1",
    "EDITOR": _NO_EDITOR,
    "VISUAL": _NO_EDITOR,
    "GIT_EDITOR": _NO_EDITOR,
    "GIT_SEQUENCE_EDITOR": _NO_LIST_EDITOR,
    "VIMINIT": _VIM_STARTS,
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "GCM_INTERACTIVE": "never",
    "SSH_ASKPASS": "false",
    "SSH_ASKPASS_REQUIRE": "force",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    # Else what a program printed before it was stopped is lost, and stderr comes before stdout.
    "PYTHONUNBUFFERED": "1",
}

#: Of the agent's own surroundings: colours forced on, its terminal, and the `make` that runs it.
_DROPPED = frozenset(
    {"FORCE_COLOR", "CLICOLOR_FORCE", "GPG_TTY", "SSH_TTY", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
)

_SECRET = re.compile(
    r"(?:^|_)(?:KEY|APIKEY|TOKEN|SECRET|PASS|PASSWD|PASSPHRASE)$|PASSWORD$|^PERDURE_.*(?:KEY|TOKEN|SECRET)",
    re.IGNORECASE,
)
_OURS = ("PERDURE_", "OPENAI_")
_PASSWORD_IN_URL = re.compile(r"://[^/\s]*:[^/\s]*@")


def environment_for_commands(own: Mapping[str, str], allowed: Collection[str] = ()) -> dict[str, str]:
    """The agent's ``own`` environment as commands get it. Variables that by their name hold a
    secret stay out, except those that are ``allowed`` by name."""
    kept = {
        name: value
        for name, value in own.items()
        if name in allowed or not (name in _DROPPED or is_secret(name, value))
    }
    quiet = dict(_QUIET)
    if ssh := own.get("GIT_SSH_COMMAND"):
        quiet["GIT_SSH_COMMAND"] = f"{ssh} -oBatchMode=yes"
    return kept | quiet


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable is taken to hold a secret: by its name, and by a password in a URL where
    it is one of ours (a store, a proxy of the model)."""
    return bool(_SECRET.search(name) or (name.startswith(_OURS) and _PASSWORD_IN_URL.search(value)))
