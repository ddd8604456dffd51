from __future__ import annotations

import pytest

from perdure.tools.environment import environment_for_commands, is_secret

SECRETS = [
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "PERDURE_API_KEY",
    "PERDURE_KEY_OF_SUMMARIZER",
    "PERDURE_WEB_TOKENS",
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY",
    "CLIENT_SECRET",
    "PGPASSWORD",
    "SMTP_PASS",
    "openai_api_key",
]
ORDINARY = [
    "PATH",
    "HOME",
    "LANG",
    "KEYBOARD",
    "SSH_AUTH_SOCK",
    "MAX_TOKENS",
    "TOKENIZERS_PARALLELISM",
    "MONKEY",
    "COMPASS",
    "PERDURE_MODEL",
    "http_proxy",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_stays_with_the_agent_unless_it_is_allowed_by_name(name: str) -> None:
    assert is_secret(name)
    assert name not in environment_for_commands({name: "s3cret"})
    assert environment_for_commands({name: "s3cret"}, allowed=[name])[name] == "s3cret"


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_variables_reach_the_command(name: str) -> None:
    assert environment_for_commands({name: "value"})[name] == "value"


def test_a_password_in_a_url_of_ours_stays_too() -> None:
    own = {
        "PERDURE_STORE": "postgresql://me:hunter2@db.example/x",
        "OPENAI_BASE_URL": "http://gate:pw@localhost/v1",
        "PERDURE_BASE_URL": "http://localhost:11434/v1",
        "DATABASE_URL": "postgresql://app:app@localhost/test",
    }
    handed_on = environment_for_commands(own)
    assert handed_on.keys() & own.keys() == {"PERDURE_BASE_URL", "DATABASE_URL"}


def test_prompts_pagers_and_colours_are_off_whatever_the_person_has() -> None:
    own = {"PAGER": "less", "EDITOR": "vim", "TERM": "xterm-256color", "FORCE_COLOR": "1", "MAKEFLAGS": "-j"}
    handed_on = environment_for_commands(own)
    assert handed_on["PAGER"] == "cat"
    assert handed_on["TERM"] == "dumb"
    assert handed_on["GIT_TERMINAL_PROMPT"] == "0"
    assert "exit 1" in handed_on["EDITOR"]
    assert not {"FORCE_COLOR", "MAKEFLAGS", "CI"} & handed_on.keys()


def test_the_persons_own_ssh_command_is_kept_and_made_not_to_ask() -> None:
    handed_on = environment_for_commands({"GIT_SSH_COMMAND": "ssh -i deploy"})
    assert handed_on["GIT_SSH_COMMAND"] == "ssh -i deploy -oBatchMode=yes"
    assert "GIT_SSH_COMMAND" not in environment_for_commands({})
