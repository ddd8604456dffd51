"""The source of Python's standard library as an agent meets it, for `files.py`: real files, real
definitions with who calls whom, real output of searches and of runs.

Two halves of packages, so that what is improved by looking at one is judged on the other.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LIBRARY = Path(sysconfig.get_paths()["stdlib"])

#: Packages whose sessions may be looked at, and those that are only reported on.
SHOWN = (
    "json",
    "email",
    "argparse",
    "configparser",
    "csv",
    "zipfile",
    "tarfile",
    "urllib",
    "html",
    "mailbox",
)
HELD_OUT = (
    "http",
    "asyncio",
    "logging",
    "concurrent",
    "smtplib",
    "statistics",
    "ipaddress",
    "xmlrpc",
    "inspect",
)

#: Programs that fail inside the library, by package; each is run for its traceback.
FAILING: Mapping[str, tuple[str, ...]] = {
    "json": ("import json; json.loads('[1, 2,, 3]')", "import json; json.dumps({(1, 2): 3})"),
    "email": (
        "import email.headerregistry as h; h.Address(addr_spec='a@b@c')",
        "import email.message as m; m.EmailMessage().add_attachment('x', maintype=1)",
    ),
    "argparse": (
        "import argparse; argparse.ArgumentParser().parse_args(['--depth', '3'])",
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('--n'); p.add_argument('--n')",
    ),
    "configparser": (
        "import configparser; configparser.ConfigParser().read_string('depth = 3')",
        "import configparser as c; p = c.ConfigParser(); p.read_string('[a]\\nb = %(c)s'); p.get('a', 'b')",
    ),
    "csv": (
        "import csv; csv.Sniffer().sniff('')",
        "import csv, io; csv.DictWriter(io.StringIO(), ['a']).writerow({'b': 1})",
    ),
    "zipfile": (
        "import io, zipfile; zipfile.ZipFile(io.BytesIO(b'PK'))",
        "import io, zipfile; zipfile.ZipFile(io.BytesIO(), 'w').open('a.txt')",
    ),
    "tarfile": (
        "import io, tarfile; tarfile.open(fileobj=io.BytesIO(b'x' * 600))",
        "import io, tarfile; tarfile.open(fileobj=io.BytesIO(), mode='w').getmember('a')",
    ),
    "urllib": (
        "import urllib.parse as p; p.urlsplit('http://[::1/x')",
        "import urllib.request as r; r.Request('no-scheme')",
    ),
    "html": ("import html.parser as p; p.HTMLParser().feed(3)",),
    "mailbox": (
        "import mailbox; mailbox.Maildir('missing', create=False)",
        "import mailbox; mailbox.MaildirMessage().set_subdir('old')",
    ),
    "http": (
        "import http.cookies as c; c.SimpleCookie()['a b'] = '1'",
        "import http.client as c; c.HTTPConnection('localhost:port')",
    ),
    "asyncio": (
        "import asyncio; asyncio.run(3)",
        "import asyncio; asyncio.run(asyncio.wait_for(asyncio.sleep(1), 0))",
    ),
    "logging": (
        "import logging; logging.basicConfig(level='LOUD')",
        "import logging.config as c; c.dictConfig({'version': 2})",
    ),
    "concurrent": (
        "import concurrent.futures as f; f.ThreadPoolExecutor(max_workers=0)",
        "import concurrent.futures as f; p = f.ThreadPoolExecutor(1); p.shutdown(); p.submit(print)",
    ),
    "smtplib": ("import smtplib; smtplib.SMTP().sendmail('a@example.org', ['b@example.org'], 'x')",),
    "statistics": (
        "import statistics; statistics.mean([])",
        "import statistics; statistics.quantiles([1, 2], n=0)",
    ),
    "ipaddress": (
        "import ipaddress; ipaddress.ip_network('192.168.4.7/24')",
        "import ipaddress; ipaddress.IPv6Address('1::2::3')",
    ),
    "xmlrpc": (
        "import xmlrpc.client as c; c.dumps((object(),))",
        "import xmlrpc.client as c; c.ServerProxy('x:y')",
    ),
    "inspect": (
        "import inspect; inspect.signature(3)",
        "import inspect; inspect.getsource(len)",
    ),
}
SECONDS = 20


@dataclass(frozen=True)
class Definition:
    """A function or class, its lines (from 1, both included), and the definitions' names it calls."""

    name: str
    path: str
    first: int
    last: int
    calls: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Files by path, each as its lines; the definitions in them, by name and by path."""

    files: Mapping[str, tuple[str, ...]]
    named: Mapping[str, tuple[Definition, ...]]
    inside: Mapping[str, tuple[Definition, ...]]

    @classmethod
    def of(cls, packages: tuple[str, ...]) -> Source:
        files = {
            f"Lib/{path.relative_to(LIBRARY).as_posix()}": tuple(path.read_text("utf-8").splitlines())
            for package in packages
            for path in paths_of(package)
        }
        every = [each for path, lines in files.items() for each in definitions(path, lines)]
        names = {each.name for each in every}
        named: dict[str, tuple[Definition, ...]] = {}
        inside: dict[str, tuple[Definition, ...]] = {}
        for each in every:
            known = tuple(name for name in each.calls if name in names and name != each.name)
            definition = Definition(each.name, each.path, each.first, each.last, known)
            named[each.name] = (*named.get(each.name, ()), definition)
            inside[each.path] = (*inside.get(each.path, ()), definition)
        return cls(files, named, inside)


def paths_of(package: str) -> list[Path]:
    single = LIBRARY / f"{package}.py"
    found = [single] if single.exists() else sorted((LIBRARY / package).rglob("*.py"))
    return [path for path in found if path.stat().st_size]


def definitions(path: str, lines: tuple[str, ...]) -> Iterator[Definition]:
    """Those whose names have four characters and more and are no dunder."""
    for node in ast.walk(ast.parse("\n".join(lines))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        called = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
        names = [
            f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
            for f in called
        ]
        if len(node.name) >= 4 and not node.name.startswith("__"):
            yield Definition(
                node.name, path, node.lineno, node.end_lineno or node.lineno, tuple(dict.fromkeys(names))
            )


def python(program: str) -> str:
    """The command that runs a program, as one types it."""
    return f'python -c "{program}"'


@functools.cache
def run(command: str, setting: str = "") -> str:
    """What a command of `python` prints, with its exit code, as a tool shows it; the library's folder as
    `/repo/Lib`. ``setting``: an environment variable as NAME=VALUE."""
    program = command.removeprefix('python -c "').removesuffix('"')
    name, _, value = setting.partition("=")
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [sys.executable, "-S", "-c", program],
            cwd=folder,
            env={name: value} if name else {},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        said = (ended.stdout + ended.stderr).replace(str(LIBRARY), "/repo/Lib").replace(folder, "/tmp/run")
    return f"{said.strip()}\nexit code {ended.returncode}"
