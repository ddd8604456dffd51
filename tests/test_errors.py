"""What a person is told of an error, in both languages."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import perdure
from perdure.errors import (
    ConfigError,
    EmbeddedModelMissing,
    EndpointUnreachable,
    ImportUnreadable,
    PerdureError,
    why,
)
from perdure.faces.cli.main import run

SOURCE = Path(perdure.__file__).parent
#: Errors whose details are ours alone, in both languages.
OURS = {"ConfigError", "EmbeddedModelMissing", "ImportUnreadable"}
HAN = re.compile(r"[\u4e00-\u9fff]")
#: Three English words in a row, which no option, command or name is.
SENTENCE = re.compile(r"(?<![-\w/.'])(?!perdure)[A-Za-z]+ [a-z]+ [a-z]+\b")


def modules() -> Iterator[ModuleType]:
    for each in pkgutil.walk_packages([str(SOURCE)], "perdure."):
        yield importlib.import_module(each.name)


def words_in(value: Any) -> Iterator[tuple[str, str]]:
    """All `Words` that a module's value holds."""
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(each, str) for each in value):
        if HAN.search(value[1]):
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from words_in(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from words_in(each)


def places(words: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(words) if name}


def test_every_detail_of_a_wrong_setting_is_in_both_languages() -> None:
    found = 0
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OURS:
                found += 1
                assert not isinstance(node.args[0], ast.JoinedStr | ast.Constant), (path, node.lineno)
    assert found > 30


def test_both_languages_have_places_for_the_same_facts() -> None:
    every = {words for module in modules() for value in vars(module).values() for words in words_in(value)}
    assert len(every) > 200
    for english, chinese in every:
        # Chinese has no word for one; what a library says stands only beside English.
        assert places(chinese) - {"where"} <= places(english), (english, chinese)
        assert places(english) - {"why", "count"} <= places(chinese), (english, chinese)


def test_a_fact_is_said_in_the_language_that_is_asked_for() -> None:
    inner = EndpointUnreachable("x {y}", url="http://u")
    error = ConfigError(
        ("no {name}{only}: {why}", "没有 {name}{only}：{why}"), name="{n}", only=("!", "！"), why=inner
    )
    assert error.say("zh").startswith("没有 {n}！：http://u 没有响应：x {y}。")
    assert str(error).startswith("no {n}!: No answer from http://u: x {y}.")
    assert str(PerdureError("{braces} stay")) == "{braces} stay"
    missing = EmbeddedModelMissing(("no package {name}", "缺少包 {name}"), name="p")
    assert "（缺少包 p）" in missing.say("zh")
    assert "f 中没有可以读作对话的内容：x。" in ImportUnreadable("x", name="f").say("zh")


def test_what_is_wrong_with_a_file_is_said_in_both_languages(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (tmp_path / "nothing").read_text()
    assert why(raised.value) == ("No such file or directory", "没有这个文件或文件夹")
    assert why(OSError(9999, "rare")) == ("rare", "系统错误 9999")
    assert why(OSError("odd")) == ("odd", "odd")


# --- what stands on the terminal

SETTINGS = (
    *("model = ", "\xff", "modell = 'x'", "max_steps = 'many'", "max_time = 'soon'", "max_time = -1"),
    *("quiet = 'perhaps'", "model = 5", "lang = 'fr'", "tool_calls = 'x'", "summary = 'x'", "memory = 'x'"),
    *("recall = 'x'", "tools = 5", "context_window = 0", "base_url = 'localhost:80'", "workspace = '/'"),
    *("yes = true", "base_url = 'https://e.example/v1'", "embedder = 'x'"),
)
ARGUMENTS = (
    *(
        ("run", ""),
        ("run", " "),
        ("run", "x", "--workspace", "nowhere"),
        ("run", "x", "--workspace", "n" * 5000),
    ),
    *(
        ("run", "x", "--max-steps", "0"),
        ("run", "x", "--max-time", "never"),
        ("run", "x", "--tools", "hammer"),
    ),
    *(("run", "x", "--base-url", "ftp://x"), ("run", "x", "--session", " "), ("run", "x", "--embedder", "x")),
    *(("run", "x", "--embedder", "endpoint:"), ("run", "--continue", "x"), ("run", "x", "--store", "pg://x")),
    *(
        ("sessions", "list", "--store", "pg://x"),
        ("sessions", "import", "nothing"),
        ("sessions", "import", "."),
    ),
    *(("sessions", "import", "empty"), ("sessions", "import", "broken"), ("sessions", "import", "numbers")),
    *(("sessions", "export", "s", "--output", "broken"), ("sessions", "export", "s", "--output", "no/where")),
    *(("sessions", "show", "s", "--entries", "x"), ("sessions", "show", "s", "--entries", "3-1")),
    *(("sessions", "rm", "s"), ("forget", "s"), ("sessions", "fork", "s", "--session", "\n")),
    *(("recall", "s", " "), ("recall", "s", "x", "--embedder", "x"), ("sessions", "show", "nobody")),
    ("sessions", "show", "s", "--entries", "99"),
)


class Person:
    """Who types a command, in a folder of their own, and reads what went wrong."""

    def __init__(self, folder: Path, told: pytest.CaptureFixture[str]) -> None:
        self.folder, self._told = folder, told

    def reads(self, *arguments: str) -> str:
        code = run(arguments)
        said = self._told.readouterr()
        assert (code, said.out) == (2, ""), said
        return said.err


@pytest.fixture
def person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Person]:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "PERDURE_MODEL": "scripted",
        "PERDURE_CONTEXT_WINDOW": "8192",
        "PERDURE_QUIET": "1",
        "PERDURE_STORE": str(tmp_path / "s.db"),
        "LC_ALL": "C.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    for name, text in (("empty", ""), ("broken", "no json"), ("numbers", "[1, 2]")):
        (tmp_path / name).write_text(text)
    with monkeypatch.context() as patched:
        patched.setenv("PERDURE_WORKSPACE", str(tmp_path / ".."))  # no session of this folder's own
        (tmp_path / "s.jsonl").write_text('{"role": "user", "content": "hi"}')
        assert run(["sessions", "import", "s.jsonl", "--session", "s"]) == 0
    capsys.readouterr()
    yield Person(tmp_path, capsys)


def assert_in_chinese_only(said: str) -> None:
    assert said.startswith("perdure: ")
    assert HAN.search(said), said
    assert not SENTENCE.search(said.removeprefix("perdure: ")), said


@pytest.mark.parametrize("text", SETTINGS)
def test_a_wrong_setting_of_a_file_is_told_in_both_languages(
    person: Person, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (person.folder / "perdure.toml").write_bytes(text.encode("latin-1"))
    # These would be nearer.
    for name in ("PERDURE_MODEL", "PERDURE_CONTEXT_WINDOW", "PERDURE_QUIET", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name)
    assert not HAN.search(person.reads("run", "x"))
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert_in_chinese_only(person.reads("run", "x"))


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: " ".join(arguments)[:60])
def test_a_wrong_argument_is_told_in_both_languages(person: Person, arguments: Sequence[str]) -> None:
    assert_in_chinese_only(person.reads(*arguments, "--lang", "zh"))
    assert not HAN.search(person.reads(*arguments))


@pytest.mark.parametrize(
    ("option", "variable", "own_file", "locale", "is_chinese"),
    [
        ("zh", "en", "en", "en_US.UTF-8", True),
        ("en", "zh", "zh", "zh_CN.UTF-8", False),
        ("auto", "zh", "zh", "en_US.UTF-8", False),
        (None, "zh", "en", "en_US.UTF-8", True),
        (None, "en", "zh", "zh_CN.UTF-8", False),
        (None, "", "zh", "en_US.UTF-8", True),
        (None, "", "", "zh_CN.UTF-8", True),
        (None, "", "", "en_US.UTF-8", False),
    ],
)
@pytest.mark.parametrize("arguments", [("sessions", "show", "nobody"), ("run", "x", "--max-steps", "many")])
def test_the_language_is_that_of_option_variable_file_or_locale(
    person: Person,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str],
    option: str | None,
    variable: str,
    own_file: str,
    locale: str,
    is_chinese: bool,
) -> None:
    monkeypatch.setenv("PERDURE_LANG", variable)
    monkeypatch.setenv("LC_ALL", locale)
    if own_file:
        own = Path.home() / ".config" / "perdure"
        own.mkdir(parents=True)
        (own / "perdure.toml").write_text(f'lang = "{own_file}"')
    given = ("--lang", option) if option else ()
    said = person.reads(*arguments, *given)
    assert bool(HAN.search(said)) == is_chinese, said


def test_that_no_model_could_be_asked_for_is_told_in_both_languages(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PERDURE_MODEL")
    assert "没有指定模型，也无法向端点询问：http://127.0.0.1:9/v1 没有响应" in person.reads(
        "run", "x", "--lang", "zh"
    )
    monkeypatch.delenv("OPENAI_BASE_URL")
    assert_in_chinese_only(person.reads("run", "x", "--model", "big", "--lang", "zh"))
