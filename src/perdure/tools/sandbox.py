"""What a shell command can reach: its workspace and little else, by bubblewrap.

A command is a model's idea, made of text that strangers may have written. In the sandbox the file system is
there to be read, since compilers and libraries lie all over it, but for what holds secrets or speaks for the
person: home folders, sockets, perdure's own store and settings. Only the workspace and the folders that the
person named can be written.

Three decisions that somebody may wonder about:

- The options are those that any user may have: a user namespace without capabilities, in which no other one
  can be made. There is nothing setuid in it, and being root outside changes nothing inside.
- Without ``--die-with-parent``. `perdure.tools.watcher` stands outside, adopts what loses its parent, and
  stops everything, however the agent ends. With that option whatever a command left behind would be gone
  before it could be named, and `cmd > >(tee log)` would lose the end of its log.
- What would act for the person later is read-only in the workspace too: its `perdure.toml`, and of its
  repository the hooks and the configuration, which names programs that git runs. The folder `.git` itself can
  be written but not moved away, so that no other one takes its place.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perdure.config.settings import Sandboxing
from perdure.errors import Words

#: Seconds that the trial may take.
PATIENCE = 10.0

OFF: Words = ("it is turned off", "已关闭")
NOT_LINUX: Words = ("it works on Linux only", "它只能在 Linux 上使用")
NO_BUBBLEWRAP: Words = ("bubblewrap (bwrap) is not installed", "没有安装 bubblewrap（bwrap）")
WHOLE_SYSTEM: Words = (
    "the workspace {workspace} holds the whole system",
    "工作区 {workspace} 包含整个系统",
)
#: ``said``: in the words of bubblewrap.
REFUSED: Words = ("bubblewrap can't make it here: {said}", "bubblewrap 在此无法建立沙箱：{said}")

#: Folders that commands have for themselves, empty at first and gone when they end: others' sockets, files
#: of other programs, home folders.
PRIVATE = ("/tmp", "/var/tmp", "/run", "/var/run", "/home", "/root")  # noqa: S108 - covered, not used
#: Of `/run`, what names are resolved with and where some systems keep their programs.
READ_IN_RUN = ("/run/systemd/resolve", "/run/NetworkManager/resolv.conf", "/run/resolvconf")
PROGRAMS_IN_RUN = ("/run/current-system", "/run/wrappers")
#: Of the home folder, what compilers, interpreters and package managers are started from. None of these
#: holds a password: `.cargo`, `.npm`, `.config` as a whole would.
TOOLCHAINS = (
    ".local/bin",
    ".local/lib",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".local/share/pipx/venvs",
    ".local/pipx/venvs",
    ".local/share/mise/installs",
    ".cargo/bin",
    ".cargo/env",
    ".rustup",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".asdf",
    ".volta",
    ".bun",
    ".deno/bin",
    ".ghcup/bin",
    ".juliaup",
    ".sdkman/candidates",
    "go/bin",
)
#: Of a home folder that is itself the workspace, or was named: what stays hidden, and what other programs
#: run when the person logs in or opens a shell.
SECRET_PLACES = (
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".config/gh",
    ".config/gcloud",
    ".config/git/credentials",
    ".config/google-chrome",
    ".config/chromium",
    ".local/share/keyrings",
    ".bash_history",
    ".zsh_history",
    ".Xauthority",
)
STARTED_AT_LOGIN = (
    ".profile",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bashrc",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".gitconfig",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    ".config/fish",
    ".local/bin",
)
#: Of the system, what only root can read, and a command of a root's agent could as well.
OF_ROOT = (
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/ssl/private",
    "/etc/letsencrypt",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/var/lib/docker",
    "/var/lib/containers",
)
#: Variables that lead to the person's agents, desktop and daemons. Their sockets can't be reached either.
WAYS_OUT = frozenset(
    {
        "SSH_AUTH_SOCK",
        "SSH_AGENT_PID",
        "GPG_AGENT_INFO",
        "DBUS_SESSION_BUS_ADDRESS",
        "DBUS_SYSTEM_BUS_ADDRESS",
        "XDG_RUNTIME_DIR",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "DOCKER_HOST",
        "CONTAINER_HOST",
        "TMUX",
        "STY",
        "KRB5CCNAME",
        "TMPDIR",
        "TEMP",
        "TMP",
    }
)
_NAMESPACES = ("--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--new-session")
#: Bubblewrap before 0.8 doesn't know it.
_NO_MORE_NAMESPACES = "--disable-userns"


@dataclass(frozen=True, slots=True)
class State:
    """Whether commands run in the sandbox, and ``why`` not, with the facts of these words."""

    in_force: bool
    why: Words = ("", "")
    facts: Mapping[str, object] = field(default_factory=dict)


class Sandbox:
    """What the commands of a workspace may reach. ``folders``: beside it, to read and to write; ``hidden``:
    files and folders of perdure's own, wherever they lie."""

    def __init__(
        self,
        workspace: Path,
        mode: Sandboxing = "auto",
        *,
        network: bool = False,
        folders: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> None:
        self.workspace = workspace
        self.mode = mode
        self.network = network
        self.folders = tuple(folders)
        self.hidden = tuple(hidden)
        #: That there is none was said to the person.
        self.told = False
        self._bubblewrap = ""
        self._namespaces: Sequence[str] = _NAMESPACES
        self._state: State | None = None

    def state(self) -> State:
        """Whether it is in force. Found out once, by really running something in it; blocking."""
        if self._state is None:
            self._state = self._tried()
        return self._state

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """The environment of commands in it."""
        return {name: value for name, value in own.items() if name not in WAYS_OUT}

    def shows(self, folder: Path) -> bool:
        """A folder outside is the same one in it: true of all where it isn't in force."""
        if not self.state().in_force:
            return True
        path = folder.resolve()
        if any(_holds(each, path) for each in self._open_folders()):
            return True
        own = [Path(each) for each in (*PRIVATE, "/proc", "/dev", tempfile.gettempdir())]
        return not any(_holds(each.resolve(), path) for each in (*own, Path.home()))

    def around(self, argv: Sequence[str], folder: Path) -> list[str]:
        """The command line that runs ``argv`` in it, in a folder."""
        return [
            self._bubblewrap,
            *self._namespaces,
            *(("--share-net",) if self.network else ()),
            *self._mounts(),
            "--chdir",
            str(folder.resolve()),
            "--",
            *argv,
        ]

    def _tried(self) -> State:
        if self.mode == "off":
            return State(False, OFF)
        if sys.platform != "linux":
            return State(False, NOT_LINUX)
        found = shutil.which("bwrap")
        if found is None:
            return State(False, NO_BUBBLEWRAP)
        self._bubblewrap = str(Path(found).absolute())
        workspace = self.workspace.resolve()
        if any(_holds(workspace, Path(each)) for each in ("/usr", "/etc", "/proc", "/dev")):
            return State(False, WHOLE_SYSTEM, {"workspace": str(workspace)})
        said = ""
        for namespaces in ((*_NAMESPACES, _NO_MORE_NAMESPACES), _NAMESPACES):
            self._namespaces = namespaces
            said = self._trial()
            if not said:
                return State(True)
        return State(False, REFUSED, {"said": said})

    def _trial(self) -> str:
        """Why nothing can be run in it; empty where something can."""
        try:
            done = subprocess.run(  # noqa: S603 - the arguments are those of this file
                self.around([shutil.which("sh") or "/bin/sh", "-c", ":"], self.workspace),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = lines[-1].removeprefix("bwrap: ") if lines else f"exit code {done.returncode}"
        return last if done.returncode else ""

    def _mounts(self) -> list[str]:
        """What stands where; what comes later covers what came before."""
        home, open_folders = Path.home(), self._open_folders()
        # Of a root's /proc, the settings of the kernel could be written without any capability.
        arguments = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/proc"]
        private = [Path(each) for each in PRIVATE if Path(each).is_dir() and not Path(each).is_symlink()]
        temporary = Path(tempfile.gettempdir()).resolve()
        for each in dict.fromkeys((*private, temporary, home.resolve())):
            # The workspace may be one of them, or hold one; then it says what stands there.
            if each.is_dir() and each != Path("/"):
                arguments += ["--tmpfs", str(each)]
        for each in (*PROGRAMS_IN_RUN, *(READ_IN_RUN if self.network else ())):
            arguments += ["--ro-bind-try", each, each]
        for each in _toolchains(home.resolve()):
            arguments += ["--ro-bind", str(each), str(each)]
        for each in sorted(open_folders, key=lambda folder: len(folder.parts)):
            arguments += ["--bind", str(each), str(each)]
        for each in open_folders:
            arguments += _kept_as_they_are(each, home.resolve())
        for each in self._covered(open_folders, home.resolve()):
            arguments += ["--tmpfs", str(each)] if each.is_dir() else ["--ro-bind", "/dev/null", str(each)]
        return arguments

    def _open_folders(self) -> list[Path]:
        """Those that can be written: the workspace, and what was named and is there."""
        named = dict.fromkeys(each.resolve() for each in (self.workspace, *self.folders))
        return [each for each in named if os.access(each, os.R_OK) and each.is_dir()]

    def _covered(self, open_folders: Sequence[Path], home: Path) -> Iterator[Path]:
        """Files and folders that would be in sight and stay hidden."""
        private = [Path(each) for each in PRIVATE] + [home]

        def in_sight(path: Path) -> bool:
            return any(_holds(each, path) for each in open_folders) or not any(
                _holds(each, path) for each in private
            )

        projects = [each for each in open_folders if not any(_holds(each, other) for other in private)]
        within_home = (home / each for each in SECRET_PLACES)
        of_root = (Path(each) for each in OF_ROOT if os.access(each, os.R_OK))
        for each in dict.fromkeys((*within_home, *of_root, *self.hidden, *_sockets())):
            if not os.access(each, os.F_OK):  # or there is no right to look: then commands have none either
                continue
            path = each.resolve()
            # A folder of perdure's that holds the workspace can't be covered without it.
            if not in_sight(path) or any(_holds(path, each) for each in open_folders):
                continue
            # A socket in a project is the project's: its database, its development server.
            if not (path.is_socket() and any(_holds(each, path) for each in projects)):
                yield path


def _kept_as_they_are(folder: Path, home: Path) -> list[str]:
    """Of a folder that can be written, what can't: see the head of this file."""
    arguments: list[str] = []
    git = folder / ".git"
    if git.is_dir() and not git.is_symlink():
        hooks = git / "hooks"
        if not hooks.exists() and not hooks.is_symlink():
            # Else a command could make it.
            hooks.mkdir()
        arguments += ["--bind", str(git), str(git)]
    later = [folder / "perdure.toml", git / "hooks", git / "config"]
    if git.is_file():
        later.append(git)
    if _holds(folder, home):
        later += [home / each for each in STARTED_AT_LOGIN]
    for each in later:
        # A link is followed when it is mounted on, to where it may not be seen at all.
        if each.exists() and not each.is_symlink():
            arguments += ["--ro-bind", str(each), str(each)]
    return arguments


def _toolchains(home: Path) -> Iterator[Path]:
    """Of the home folder, what programs are started from: the usual places, those of PATH, and the Python
    that runs this."""
    named = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each.startswith("/")]
    pythons = [Path(sys.prefix), Path(sys.base_prefix)]
    if environment := os.environ.get("VIRTUAL_ENV"):
        pythons.append(Path(environment))
    private = [home, *(Path(each) for each in PRIVATE)]
    seen: set[Path] = set()
    for each in (*(home / place for place in TOOLCHAINS), *named, *pythons):
        path = Path(os.path.normpath(each))
        hidden = any(_holds(folder, path) and path != folder for folder in private)
        if path in seen or not hidden or _holds(path, home) or not os.access(path, os.R_OK):
            continue
        real = path.resolve()
        if not _holds(real, home) and real not in private:
            seen.add(path)
            yield path
    config = home / ".gitconfig"
    if config.is_file() and not _tells_a_secret(config):
        # Who commits stands in it.
        yield config


def _tells_a_secret(config: Path) -> bool:
    from perdure.chat.secrets import masked

    try:
        text = config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return True
    return masked(text) != text or "extraheader" in text.lower() or "password" in text.lower()


def _sockets() -> Iterator[Path]:
    """Sockets that something outside listens at. That a file system is read-only keeps nobody from
    connecting to one."""
    try:
        text = Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines()[1:]:
        path = line.split(None, 7)[7:]
        if path and path[0].startswith("/"):
            yield Path(path[0])


def _holds(folder: Path, path: Path) -> bool:
    """The path is the folder, or in it."""
    return path == folder or folder in path.parents
