"""Tools of a person's own: from a file, and from a package that is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.tools.own import Provided, together, tools_in_file, tools_in_packages
from perdure.tools.registry import tool

WEATHER = '''
from __future__ import annotations

from perdure import tool

print("a file may print while it is loaded")


@tool(effect="reads")
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def call(number: str) -> str:
    """Call a number."""
    return "rang"


the_same = weather
'''


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, entries: str) -> None:
    """A package as an installer leaves it: a module, and what its metadata say of it."""
    (folder / f"{name}.py").write_text(module)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[perdure.tools]\n{entries}\n")
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(str(folder))


def test_a_file_gives_its_tools_in_its_order_each_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tools_in_file(written(tmp_path / "mine.py", WEATHER))
    assert [(each.name, each.tool.effect, each.place) for each in found] == [
        ("weather", "reads", "file"),
        ("call", "acts", "file"),
    ]
    assert found[0].tool.run(city="Lyon") == "sunny in Lyon"
    assert found[0].source.endswith("mine.py")
    assert found[0].line == 9
    assert capsys.readouterr().out == ""


def test_what_lies_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    written(tmp_path / "its_neighbour.py", "WORD = 'near'\n")
    text = WEATHER + "\nfrom its_neighbour import WORD\n\n\n@tool\ndef near() -> str:\n    return WORD\n"
    found = tools_in_file(written(tmp_path / "mine.py", text))
    assert found[-1].tool.run() == "near"


def test_two_files_of_one_name_are_two(tmp_path: Path) -> None:
    found = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        text = f"from perdure import tool\n\n@tool\ndef {folder}() -> str:\n    return __file__\n"
        found += tools_in_file(written(tmp_path / folder / "mine.py", text))
    assert [each.name for each in found] == ["a", "b"]
    assert found[0].tool.run() != found[1].tool.run()


def test_all_says_which_tools_are_meant(tmp_path: Path) -> None:
    found = tools_in_file(written(tmp_path / "mine.py", WEATHER + '\n__all__ = ["call"]\n'))
    assert [each.name for each in found] == ["call"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os\n\nx = 1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("x = 1\ny = (\n", "line 2: SyntaxError"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        ("import not_there_at_all\n", "line 1: ModuleNotFoundError"),
        ("from perdure import tool\n\n@tool\ndef f(x):\n    return x\n", "line 3: TypeError"),
        ("def f():\n    raise ValueError('deep')\n\n\nf()\n", "line 2: ValueError: deep"),
        ("x = 1\n", "has no tools"),
        ("x = '\0'\n", "SyntaxError"),
    ],
)
def test_a_file_that_gives_none_is_an_error_that_says_where(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tools_in_file(written(tmp_path / "mine.py", text))
    assert told in caught.value.say("en")
    assert "mine.py" in caught.value.say("en")
    assert "mine.py" in caught.value.say("zh")
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_there_is_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        tools_in_file(str(tmp_path / "none.py"))


def test_a_name_that_is_taken_is_told_with_both_places(tmp_path: Path) -> None:
    first = tools_in_file(written(tmp_path / "mine.py", WEATHER))
    second = tools_in_file(written(tmp_path / "theirs.py", WEATHER))
    with pytest.raises(ConfigError) as caught:
        together(first, second)
    assert "theirs.py:9: the name weather is taken" in caught.value.say("en")
    assert "mine.py:9" in caught.value.say("en")


def test_a_name_that_every_conversation_uses_is_taken(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is a tool call built in"):
        together([], tools_in_file(written(tmp_path / "mine.py", WEATHER)), {"call"})


def test_packages_give_tools_lists_and_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = WEATHER + "\nboth = [weather, call]\n"
    installed(tmp_path, monkeypatch, "one_tool_pkg", more, "w = one_tool_pkg:weather")
    installed(tmp_path, monkeypatch, "list_tool_pkg", more, "l = list_tool_pkg:both")
    installed(tmp_path, monkeypatch, "whole_tool_pkg", more, "m = whole_tool_pkg")
    found, troubles = tools_in_packages()
    assert [(each.source, each.name) for each in found] == [
        ("list_tool_pkg", "weather"),
        ("list_tool_pkg", "call"),
        ("one_tool_pkg", "weather"),
        ("whole_tool_pkg", "weather"),
        ("whole_tool_pkg", "call"),
    ]
    assert not troubles
    every, left_out = together([], found)
    assert [each.source for each in every] == ["list_tool_pkg", "list_tool_pkg"]
    assert "the tool weather of the package one_tool_pkg is left out" in left_out[0].say("en")
    assert "软件包 one_tool_pkg" in left_out[0].say("zh")


def test_a_broken_package_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, "broken_pkg", "raise RuntimeError('half installed')\n", "b = broken_pkg")
    installed(tmp_path, monkeypatch, "other_pkg", "value = 3\n", "o = other_pkg:value")
    installed(tmp_path, monkeypatch, "sound_pkg", WEATHER, "s = sound_pkg:weather")
    found, troubles = tools_in_packages()
    assert [each.name for each in found] == ["weather"]
    assert [each.say("en") for each in troubles] == [
        "the tools of the package broken_pkg are left out: RuntimeError: half installed",
        "the tools of the package other_pkg are left out: "
        "other_pkg:value is neither a tool nor a module or list of tools",
    ]


def test_the_same_tool_on_two_ways_is_one() -> None:
    @tool
    def act() -> str:
        return ""

    both = together([Provided(act, "program")], [Provided(act, "file", "mine.py")])
    assert [each.place for each in both[0]] == ["program"]
