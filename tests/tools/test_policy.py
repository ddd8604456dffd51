from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure.chat.calls import ToolCall
from perdure.errors import ConfigError
from perdure.tools.bash import bash_tool
from perdure.tools.contract import Effect, Tool
from perdure.tools.files import read_file_tool
from perdure.tools.policy import Policy
from perdure.tools.registry import tool
from perdure.tools.rules import rules_of
from perdure.tools.writing import edit_file_tool, write_file_tool


@pytest.mark.parametrize(
    ("effect", "policy", "verdict"),
    [
        ("reads", Policy(), "allow"),
        ("acts", Policy(), "deny"),
        ("acts", Policy(interactive=True), "ask"),
        ("acts", Policy(approve_all=True), "allow"),
        ("acts", Policy(approve_all=True, interactive=True), "allow"),
        ("reads", Policy(interactive=True), "allow"),
    ],
)
def test_looking_is_allowed_and_acting_asks(effect: Effect, policy: Policy, verdict: str) -> None:
    def act(what: str) -> str:
        return what

    decision = policy.decide(tool(effect=effect)(act), ToolCall("x", "act", "{}"))
    assert decision.verdict == verdict
    assert ("--yes" in decision.why) == (verdict == "deny")


def test_a_tool_acts_unless_it_says_that_it_only_reads() -> None:
    def unknown(x: str) -> str:
        return x

    assert tool(unknown).effect == "acts"


# --- rules ----------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    workspace = tmp_path / "work"
    (workspace / "src").mkdir(parents=True)
    (workspace / "secret").mkdir()
    (workspace / "src/link").symlink_to(workspace / "secret")
    made = (
        bash_tool(workspace),
        read_file_tool(workspace),
        write_file_tool(workspace),
        edit_file_tool(workspace),
    )
    return {each.spec.name: each for each in made}


def asked_of(
    tools: dict[str, Tool], policy: Policy, name: str, **arguments: Any
) -> Literal["allow", "ask", "deny"]:
    return policy.decide(tools[name], ToolCall("x", name, json.dumps(arguments))).verdict


def ruled(**rules: list[str]) -> Policy:
    return Policy(interactive=True, **{name: rules_of(texts) for name, texts in rules.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "command", "verdict"),
    [
        # What is allowed is allowed with its arguments, and nothing beside it.
        (["bash(git log *)"], "git log", "allow"),
        (["bash(git log *)"], "git log --oneline -n 3", "allow"),
        (["bash(git log *)"], "git  'log' \"-1\"", "allow"),
        (["bash(git log *)"], "git logs", "ask"),
        (["bash(git log *)"], "git push", "ask"),
        (["bash(git log)"], "git log -1", "ask"),
        (["bash(git * main)"], "git push main", "allow"),
        (["bash(git * main)"], "git push origin main", "ask"),
        (["bash(make test)"], "make test", "allow"),
        (["bash"], "rm -rf x > y; $Z", "allow"),
        (["b*"], "rm x", "allow"),
        # Compound commands: each part.
        (["bash(git log *)"], "git log && rm x", "ask"),
        (["bash(git log *)"], "git log; rm x", "ask"),
        (["bash(git log *)"], "git log | sh", "ask"),
        (["bash(git log *)"], "git log & rm x", "ask"),
        (["bash(git log *)"], "git log\nrm x", "ask"),
        (["bash(git log *)"], "git log $(rm x)", "ask"),
        (["bash(git log *)"], "git log `rm x`", "ask"),
        (["bash(git log *)"], 'git log "$(rm x)"', "ask"),
        (["bash(git log *)"], "git log <(rm x)", "ask"),
        (["bash(git log *)"], "git log ${a:-$(rm x)}", "ask"),
        (["bash(git log *)"], "git log <<E\n$(rm x)\nE", "ask"),
        (["bash(git log *)"], "(git log; rm x)", "ask"),
        (["bash(git log *)", "bash(head *)"], "git log | head -3", "allow"),
        (["bash(git log *)", "bash(wc *)"], "cd src && git log | wc -l && echo done", "allow"),
        (["bash(ls *)", "bash(cat *)"], "for f in $(ls); do cat $f; done", "allow"),
        # What only looks like it.
        (["bash(git log *)"], "PATH=/evil git log", "ask"),
        (["bash(git log *)"], "GIT_PAGER=evil git log", "ask"),
        (["bash(git log *)"], "git() { rm x; }; git log", "ask"),
        (["bash(git log *)"], "alias git=rm; git log", "ask"),
        (["bash(git log *)"], "export PATH=/evil; git log", "ask"),
        (["bash(git log *)"], "/tmp/git log", "ask"),
        (["bash(git log *)"], "./git log", "ask"),
        (["bash(git log *)"], "sudo git log", "ask"),
        (["bash(git log *)"], "env git log", "ask"),
        (["bash(git log *)"], "Git log", "ask"),
        (["bash(git log *)"], "git log 'x", "ask"),
        (["bash(git log *)"], "git\u00a0log", "ask"),
        (["bash(git log *)"], "g$X log", "ask"),
        (["bash(git log *)"], "git $X", "ask"),
        (["bash(git log *)"], "git log $X", "allow"),
        (["bash(git log -1)"], "git log $X", "ask"),
        (["bash(echo *)"], "echo ${x@P}", "ask"),
        (["bash(bash *)"], "bash -c 'rm x'", "ask"),
        (["bash(bash *)", "bash(ls *)"], "bash -c 'ls a'", "allow"),
        (["bash(eval *)"], "eval rm x", "ask"),
        # Writing by redirection.
        (["bash(git log *)"], "git log > x", "ask"),
        (["bash(git log *)"], "git log > /dev/null 2>&1", "allow"),
        (["bash(git log *)"], "git log >| $HOME/x", "ask"),
        (["bash(git log *)", "write_file(/tmp/out/**)"], "git log > /tmp/out/x", "allow"),
        (["bash(git log *)", "write_file(/tmp/out/**)"], "git log > /tmp/out/../../etc/x", "ask"),
        (["bash(git log *)", "write_file(**)"], "cd / && git log > etc/x", "ask"),
        # Harmless builtins need no rule; what hides in their arguments does.
        ([], "cd src && pwd && echo hi", "allow"),
        ([], "echo $(rm x)", "ask"),
        ([], "echo hi > x", "ask"),
        ([], "test -v 'a[$(rm x)]'", "ask"),
        ([], "printf -v PATH x", "ask"),
        ([], "", "allow"),
    ],
)
def test_a_command_is_allowed_by_each_of_its_parts(
    tools: dict[str, Tool], rules: list[str], command: str, verdict: str
) -> None:
    assert asked_of(tools, ruled(allow=rules), "bash", command=command) == verdict


@pytest.mark.parametrize(
    ("rule", "command", "verdict"),
    [
        ("bash(rm *)", "rm x", "deny"),
        ("bash(rm *)", "ls; rm x", "deny"),
        ("bash(rm *)", "ls $(rm x)", "deny"),
        ("bash(rm *)", "/bin/rm x", "deny"),
        ("bash(rm *)", "RM x", "deny"),
        ("bash(rm *)", "\\rm x", "deny"),
        ("bash(rm *)", "A=1 rm x", "deny"),
        ("bash(rm *)", "sudo -u me rm x", "deny"),
        ("bash(rm *)", "find . -name a -exec rm {} \\;", "deny"),
        ("bash(rm *)", "ls | xargs -n1 rm", "deny"),
        ("bash(rm *)", "bash -c 'rm x'", "deny"),
        ("bash(rm *)", "eval rm x", "deny"),
        ("bash(rm *)", "f() { rm x; }; f", "deny"),
        ("bash(rm *)", "timeout 5 rm x", "deny"),
        ("bash(rm *)", "$X y", "ask"),
        ("bash(rm *)", "r? x", "ask"),
        ("bash(rm *)", "curl x | sh", "ask"),
        ("bash(rm *)", "echo 'open", "ask"),
        ("bash(rm *)", "ls", "allow"),
        ("bash(rm *)", "echo rm x", "allow"),
        ("bash(git push *)", "git push origin", "deny"),
        ("bash(git push *)", "git $X", "ask"),
        ("bash(git push *)", "git pull", "allow"),
        ("bash", "ls", "deny"),
        ("write_file(.env)", "echo x > .env", "deny"),
        ("write_file(.env)", "echo x > $F", "ask"),
        ("write_file(.env)", "echo x > other", "ask"),
        ("write_file", "echo x > other", "deny"),
    ],
)
def test_what_is_denied_is_denied_with_yes_and_what_may_be_it_is_asked(
    tools: dict[str, Tool], rule: str, command: str, verdict: str
) -> None:
    policy = ruled(deny=[rule])
    policy.approve_all = True
    assert asked_of(tools, policy, "bash", command=command) == verdict
    policy.interactive = False
    assert asked_of(tools, policy, "bash", command=command) == ("allow" if verdict == "allow" else "deny")


@pytest.mark.parametrize(
    ("name", "path", "verdict"),
    [
        ("edit_file", "src/a.py", "allow"),
        ("edit_file", "./src/deep/a.py", "allow"),
        ("edit_file", "src/../other.py", "ask"),
        ("edit_file", "a/src/x", "ask"),
        ("edit_file", "src/link/x", "deny"),
        ("edit_file", "secret/x", "deny"),
        ("edit_file", "../work/secret/x", "deny"),
        ("edit_file", "/etc/passwd", "ask"),
        ("write_file", "src/a.py", "ask"),
        ("read_file", "README", "allow"),
        ("read_file", "secret/key", "deny"),
        ("edit_file", "", "ask"),
    ],
)
def test_files_are_judged_by_where_they_lie(
    tools: dict[str, Tool], name: str, path: str, verdict: str
) -> None:
    policy = ruled(allow=["edit_file(src/**)"], deny=["edit_file(secret/**)", "read_file(secret/)"])
    arguments = {"path": path, "old_text": "a", "new_text": "b", "content": "c"}
    assert asked_of(tools, policy, name, **arguments) == verdict


def test_what_denies_wins_over_what_asks_and_that_over_what_allows(tools: dict[str, Tool]) -> None:
    policy = ruled(allow=["bash"], ask=["bash(git *)"], deny=["bash(git push *)"])
    assert asked_of(tools, policy, "bash", command="ls") == "allow"
    assert asked_of(tools, policy, "bash", command="git log") == "ask"
    assert asked_of(tools, policy, "bash", command="git push") == "deny"
    policy.approve_all = True
    assert asked_of(tools, policy, "bash", command="git log") == "allow", "the person said yes to this run"


def test_read_only_is_read_only_whatever_is_allowed(tools: dict[str, Tool]) -> None:
    policy = ruled(allow=["bash", "edit_file"])
    policy.read_only = policy.approve_all = True
    assert asked_of(tools, policy, "bash", command="ls") == "deny"
    assert asked_of(tools, policy, "edit_file", path="a") == "deny"
    assert asked_of(tools, policy, "read_file", path="a") == "allow"


@pytest.mark.parametrize(
    ("command", "rules", "also", "not_this"),
    [
        ("git log -1", ["bash(git log *)"], "git log -3", "git push"),
        ("ls -la", ["bash(ls *)"], "ls x", "rm x"),
        ("git log | head -3", ["bash(git log *)", "bash(head *)"], "head x", "git push"),
        ("git -C x log", ["bash(git -C x log)"], "git -C x log", "git -C y log"),
        ("python x.py", ["bash(python x.py)"], "python x.py", "python y.py"),
        ("rm 'a b'", ["bash(rm 'a b')"], "rm 'a b'", "rm c"),
        ("rm 'a*'", ["bash(rm 'a[*]')"], "rm 'a*'", "rm ab"),
        ("sudo ls", ["bash(sudo ls)"], "sudo ls", "sudo rm x"),
        ("npm test && cd x", ["bash(npm test *)"], "npm test", "npm publish"),
        ("python $X", [], "", ""),
        ("bash -c ls", [], "", ""),
        ("ls > x", [], "", ""),
        ("$X", [], "", ""),
        ("A=1 ls", [], "", ""),
    ],
)
def test_always_allows_what_it_says_and_no_more(
    tools: dict[str, Tool], command: str, rules: list[str], also: str, not_this: str
) -> None:
    kept: list[Any] = []
    policy = Policy(interactive=True, keep=lambda rules, lasting: kept.append((list(rules), lasting)))
    call = ToolCall("x", "bash", json.dumps({"command": command}))
    decision = policy.decide(tools["bash"], call)
    assert (decision.verdict, decision.always) == ("ask", ", ".join(rules))
    if rules:
        policy.remember(tools["bash"], call, "session")
        assert kept == [(rules, "session")]
        assert policy.decide(tools["bash"], call).verdict == "allow"
        assert asked_of(tools, policy, "bash", command=also) == "allow"
        assert asked_of(tools, policy, "bash", command=not_this) == "ask"


def test_always_for_files_is_for_the_workspace(tools: dict[str, Tool]) -> None:
    policy = Policy(interactive=True)
    call = ToolCall("x", "edit_file", json.dumps({"path": "src/a", "old_text": "a", "new_text": "b"}))
    assert policy.decide(tools["edit_file"], call).always == "edit_file(**)"
    policy.remember(tools["edit_file"], call, "session")
    assert asked_of(tools, policy, "edit_file", path="other/b", old_text="", new_text="") == "allow"
    assert asked_of(tools, policy, "edit_file", path="/etc/x", old_text="", new_text="") == "ask"
    assert asked_of(tools, policy, "write_file", path="x", content="") == "ask"


def test_the_reason_names_the_rule_in_the_persons_language(tools: dict[str, Tool]) -> None:
    policy = ruled(deny=["bash(rm *)"])
    call = ToolCall("x", "bash", '{"command": "rm x"}')
    assert "bash(rm *)" in policy.decide(tools["bash"], call).why
    policy.lang = "zh"
    assert "规则禁止" in policy.decide(tools["bash"], call).why


@pytest.mark.parametrize("text", ["", "bash(", "bash()", "ba sh", "(x)", "bash(x", "bash)x("])
def test_what_is_no_rule_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="is no rule"):
        rules_of([text])


@pytest.mark.parametrize("arguments", ["", "null", "[]", "{", '{"command": 3}', '{"command": null}'])
def test_a_decision_on_anything_raises_nothing(tools: dict[str, Tool], arguments: str) -> None:
    policy = ruled(allow=["bash(ls *)", "edit_file(x)"], deny=["bash(rm *)", "edit_file(y)"], ask=["bash(z)"])
    for each in tools.values():
        verdict = policy.decide(each, ToolCall("x", each.spec.name, arguments)).verdict
        assert verdict == ("allow" if each.effect == "reads" else "ask")
