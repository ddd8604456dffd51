from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.config import McpServer, ModelPrice, Secret, Settings, is_loopback, load
from perdure.errors import ConfigError


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    own, workspace = tmp_path / "own", tmp_path / "workspace"
    own.mkdir()
    workspace.mkdir()
    return own, workspace


def loaded(folders: tuple[Path, Path], environment: dict[str, str] | None = None, **flags: Any) -> Settings:
    own, workspace = folders
    return load({"workspace": workspace, **flags}, environment or {}, config_folder=own)


def test_what_is_nearer_to_the_person_wins(folders: tuple[Path, Path]) -> None:
    own, workspace = folders
    assert loaded(folders).model is None
    (own / "perdure.toml").write_text('model = "own"\nmax_steps = 7')
    assert (loaded(folders).model, loaded(folders).max_steps) == ("own", 7)
    (workspace / "perdure.toml").write_text('model = "workspace"\ncontext-window = 4096')
    assert (loaded(folders).model, loaded(folders).context_window) == ("workspace", 4096)
    environment = {"PERDURE_MODEL": "environment", "PERDURE_CONTEXT_WINDOW": "2048"}
    assert (loaded(folders, environment).model, loaded(folders, environment).context_window) == (
        "environment",
        2048,
    )
    assert loaded(folders, environment, model="flag").model == "flag"
    assert loaded(folders, environment, model=None).model == "environment"


def test_the_openai_variables_are_read_and_a_key_alone_means_openai(folders: tuple[Path, Path]) -> None:
    assert loaded(folders).embedded
    both = loaded(folders, {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://localhost:8000/v1"})
    assert (both.base_url, str(both.api_key)) == ("http://localhost:8000/v1", "sk-1")
    assert loaded(folders, {"OPENAI_API_KEY": "sk-1"}).base_url == "https://api.openai.com/v1"
    empty = loaded(folders, {"OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": ""})
    assert empty.base_url == "https://api.openai.com/v1"
    assert loaded(folders, {"OPENAI_API_KEY": ""}).embedded


def test_a_key_does_not_show_itself(folders: tuple[Path, Path]) -> None:
    settings = loaded(folders, {"OPENAI_API_KEY": "sk-very-secret"})
    assert "very-secret" not in repr(settings)
    assert repr(Secret("")) == "Secret('')"


@pytest.mark.parametrize(
    "text",
    [
        "yes = true",
        'api_key = "sk-x"',
        'store = "x.db"',
        'memory = "all"',
        'embedder = "endpoint:m"',
        "[prices.m]\ninput = 0\noutput = 0",
        'base_url = "https://evil.example/v1"',
    ],
)
def test_a_checkouts_own_file_may_neither_approve_nor_redirect(folders: tuple[Path, Path], text: str) -> None:
    own, workspace = folders
    (workspace / "perdure.toml").write_text(text)
    with pytest.raises(ConfigError, match="may not"):
        loaded(folders)
    (workspace / "perdure.toml").unlink()
    (own / "perdure.toml").write_text(text)
    loaded(folders)


def test_a_checkouts_own_file_may_name_this_machine(folders: tuple[Path, Path]) -> None:
    (folders[1] / "perdure.toml").write_text('base_url = "http://127.0.0.1:8080/v1"')
    assert loaded(folders).base_url == "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = ", "not valid TOML"),
        ("modell = 'x'", "no setting 'modell'"),
        ("max_steps = 'many'", "whole number"),
        ("max_steps = 2.5", "whole number"),
        ("max_steps = true", "whole number"),
        ("max_time = 'soon'", "seconds"),
        ("max_time = -1", "positive"),
        ("max_time = nan", "positive"),
        ("max_tokens = 0", "at least 1"),
        ("max_tokens = 1.5", "whole number"),
        ("max_cost = 0", "more than 0 US dollars"),
        ("max_cost = -1", "more than 0 US dollars"),
        ("max_cost = nan", "more than 0 US dollars"),
        ("max_cost = inf", "more than 0 US dollars"),
        ("max_cost = '$1'", "number of US dollars"),
        ("max_cost = true", "number of US dollars"),
        ("prices = 5", "must be tables"),
        ("[prices]\nm = 5", "must be tables"),
        ("[prices.m]\ninput = 1", "has input, output and perhaps cached, not input"),
        ("[prices.m]\ninput = 1\noutput = 2\ncache = 1", "input, output, cache"),
        ("[prices.m]", "has input, output"),
        ("[prices.m]\ninput = -1\noutput = 2", "0 or more, not -1"),
        ("[prices.m]\ninput = 1\noutput = inf", "0 or more, not inf"),
        ("[prices.m]\ninput = 1\noutput = 2\ncached = nan", "0 or more, not nan"),
        ("[prices.m]\ninput = true\noutput = 2", "million tokens"),
        ("[prices.m]\ninput = '1'\noutput = 2", "million tokens"),
        ("quiet = 'perhaps'", "true or false"),
        ("model = 5", "a text"),
        ("lang = 'fr'", "en, zh, auto"),
        ("tool_calls = 'magic'", "native, examples"),
        ("summary = 'never'", "sync, background, code"),
        ("summary = true", "a text"),
        ("summary = ''", "sync, background, code"),
        ("summary_timeout = 0", "positive"),
        ("summary_timeout = inf", "positive"),
        ("summary_timeout = 'soon'", "seconds"),
        ("summary_model = 5", "a text"),
        ("tools = 5", "list of names"),
        ("context_window = 0", "at least 1"),
        ("base_url = 'localhost:80'", "http"),
        ("workspace = '/'", "no setting"),
    ],
)
def test_what_is_not_understood_is_a_clear_error(folders: tuple[Path, Path], text: str, said: str) -> None:
    (folders[0] / "perdure.toml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        loaded(folders)


def test_a_file_that_is_no_text_is_a_clear_error(folders: tuple[Path, Path]) -> None:
    (folders[1] / "perdure.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        loaded(folders)


def test_values_are_read_in_the_forms_people_write(folders: tuple[Path, Path]) -> None:
    for said, meant in (
        ("1", True),
        ("TRUE", True),
        ("on", True),
        ("no", False),
        ("0", False),
        ("off", False),
    ):
        assert loaded(folders, {"PERDURE_QUIET": said}).quiet is meant
    assert loaded(folders, tools="bash, calculator").tools == ("bash", "calculator")
    assert loaded(folders, tools="").tools == ()
    (folders[0] / "perdure.toml").write_text('tools = ["bash"]')
    assert loaded(folders).tools == ("bash",)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://[::1]:8080", True),
        ("http://127.evil.example/v1", False),
        ("http://localhost.evil.example", False),
        ("https://api.openai.com/v1", False),
        ("http://10.0.0.1", False),
        ("not a url", False),
    ],
)
def test_this_machine_is_known_by_name_and_address(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


def test_a_general_yes_says_nothing_of_a_small_model_and_one_for_this_run_does(
    folders: tuple[Path, Path],
) -> None:
    general = loaded(folders, {"PERDURE_YES": "1"})
    assert (general.yes, general.yes_small) == (True, False)
    this_run = loaded(folders, yes=True)
    assert (this_run.yes, this_run.yes_small) == (True, True)
    assert loaded(folders, {"PERDURE_YES_SMALL": "1"}).yes_small


def test_who_writes_the_gist_is_left_open_until_somebody_says(folders: tuple[Path, Path]) -> None:
    unsaid = loaded(folders)
    assert (unsaid.summary, unsaid.summary_model, unsaid.summary_timeout) == (None, None, 60.0)
    (folders[1] / "perdure.toml").write_text('summary = "background"\nsummary-model = "small"')
    from_file = loaded(folders)
    assert (from_file.summary, from_file.summary_model) == ("background", "small")
    environment = {"PERDURE_SUMMARY": "code", "PERDURE_SUMMARY_TIMEOUT": "7.5"}
    from_environment = loaded(folders, environment)
    assert (from_environment.summary, from_environment.summary_timeout) == ("code", 7.5)
    assert loaded(folders, environment, summary="sync", summary_model=" other ").summary_model == "other"
    assert loaded(folders, environment, summary="sync").summary == "sync"


def test_prices_are_read_by_the_name_of_the_model(folders: tuple[Path, Path]) -> None:
    text = '[prices."org/m:8b"]\ninput = 2\noutput = 0.5\n[prices.free]\ninput = 0\noutput = 0\ncached = 0'
    (folders[0] / "perdure.toml").write_text(text)
    assert loaded(folders).prices == {"org/m:8b": ModelPrice(2, 0.5), "free": ModelPrice(0, 0, 0)}
    with pytest.raises(ConfigError, match="must be tables"):
        loaded(folders, {"PERDURE_PRICES": "0"})


@pytest.mark.parametrize(("own", "theirs", "kept"), [(1.0, 5.0, 1.0), (5.0, 1.0, 1.0), (None, 2.0, 2.0)])
def test_a_checkouts_own_file_lowers_what_may_be_spent_and_never_raises_it(
    folders: tuple[Path, Path], own: float | None, theirs: float, kept: float
) -> None:
    for folder, limit in zip(folders, (own, theirs), strict=True):
        if limit is not None:
            (folder / "perdure.toml").write_text(f"max_cost = {limit}\nmax_tokens = {limit * 100:.0f}")
    settings = loaded(folders)
    assert (settings.max_cost, settings.max_tokens) == (kept, kept * 100)
    assert loaded(folders, {"PERDURE_MAX_COST": "9"}).max_cost == 9, "the person's own word"
    assert loaded(folders, {"PERDURE_MAX_TOKENS": "9"}, max_tokens="11").max_tokens == 11


def test_rules_add_up_from_wherever_they_come(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "perdure.toml").write_text('allow = ["bash(git log *)"]\ndeny = ["bash(rm *)"]\n')
    (tmp_path / "perdure.toml").write_text('deny = ["edit_file(vendor/**)"]\nask = ["bash(make *)"]\n')
    settings = load(
        {"workspace": tmp_path, "allow": ["bash(ls, *)"]},
        {"PERDURE_ALLOW": "calculator; bash(a, b)\nread_file"},
        config_folder=tmp_path / "own",
    )
    assert settings.allow == ("bash(git log *)", "calculator", "bash(a, b)", "read_file", "bash(ls, *)")
    assert settings.ask == ("bash(make *)",)
    assert settings.deny == ("bash(rm *)", "edit_file(vendor/**)")


@pytest.mark.parametrize(
    "text",
    [
        'allow = ["bash"]',
        '[mcp.x]\ncommand = "run-me"',
        'tool_files = ["tools.py"]',
        'sandbox = "off"',
        "sandbox_network = true",
        'sandbox_folders = ["~"]',
    ],
)
def test_a_checkout_may_not_open_what_the_person_has_not(tmp_path: Path, text: str) -> None:
    (tmp_path / "perdure.toml").write_text(text + "\n")
    with pytest.raises(ConfigError, match="your own configuration folder"):
        load({"workspace": tmp_path}, {})


@pytest.mark.parametrize("name", ["read_only", "offline"])
def test_a_checkout_may_tighten_and_not_loosen(tmp_path: Path, name: str) -> None:
    own, theirs = tmp_path / "own", tmp_path / "perdure.toml"
    own.mkdir()
    theirs.write_text(f"{name} = false\n")
    (own / "perdure.toml").write_text(f"{name} = true\n")
    assert getattr(load({"workspace": tmp_path}, {}, config_folder=own), name)
    theirs.write_text(f"{name} = true\n")
    (own / "perdure.toml").write_text("")
    assert getattr(load({"workspace": tmp_path}, {}, config_folder=own), name)
    assert not getattr(load({"workspace": tmp_path, name: False}, {}, config_folder=own), name)


def test_servers_of_tools(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text(
        "[mcp.files]\ncommand = \"npx -y 'a server'\"\nenv = { TOKEN = 'hidden' }\nreads = ['look']\n"
        "[mcp.web]\nurl = 'https://example.org/mcp'\ntimeout = 5\ntools = ['search']\n"
    )
    (tmp_path / "workspace").mkdir()
    servers = load({"workspace": tmp_path / "workspace"}, {}, config_folder=tmp_path).mcp
    assert servers["files"] == McpServer(("npx", "-y", "a server"), env={"TOKEN": "hidden"}, reads=("look",))
    assert servers["web"] == McpServer(url="https://example.org/mcp", timeout=5.0, tools=("search",))
    assert "hidden" not in repr(servers)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mcp = 3", "must be tables"),
        ("[mcp.x]\n", "either a command or a url"),
        ("[mcp.x]\ncommand = 'a'\nurl = 'http://b'", "either a command or a url"),
        ("[mcp.x]\nurl = 'ftp://b'", "http"),
        ("[mcp.x]\ncommand = 'a'\nkind = 1", "not kind"),
        ("[mcp.'x y']\ncommand = 'a'", "letters"),
        ("[mcp.x]\ncommand = 'a'\nenv = { A = 1 }", "table of texts"),
        ("[mcp.x]\ncommand = 'a'\ntimeout = 0", "seconds"),
        ("deny = 'x'\nask = [1]", "list of rules"),
        ("sandbox = 'maybe'", "auto, on, off"),
    ],
)
def test_what_is_no_server_and_no_rule_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "perdure.toml").write_text(text + "\n")
    (tmp_path / "workspace").mkdir()
    with pytest.raises(ConfigError, match=said):
        load({"workspace": tmp_path / "workspace"}, {}, config_folder=tmp_path)
