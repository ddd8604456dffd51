from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from memory.histories import histories
from perdure.chat.foreign import read_history
from perdure.chat.language import Language
from perdure.chat.messages import Entry, Kind, Message, kind_of
from perdure.chat.repair import repair
from perdure.faces.export import as_html, as_jsonl, as_markdown
from perdure.store.journal import Recorded

KEY = "sk-proj-Ab3dEf6hIj9kLm2nOp5q"
TIME = "2026-01-02T03:04:05.678+00:00"
PICTURE = "data:image/png;base64,iVBORw0KGgo="
Record = Entry | Recorded


def entry(number: int, kind: Kind, message: Message, time: str = TIME) -> Entry:
    return Entry(number, kind, message, 7, time)


def said(*texts: str) -> list[Record]:
    """A person and an assistant in turns."""
    kinds = ((Kind.USER, "user"), (Kind.ASSISTANT, "assistant"))
    return [
        entry(number, kinds[number % 2 == 0][0], {"role": kinds[number % 2 == 0][1], "content": text})
        for number, text in enumerate(texts, 1)
    ]


def called(arguments: str, result: str = "shown") -> list[Record]:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": arguments}}
    return [
        entry(1, Kind.USER, {"role": "user", "content": "go"}),
        entry(2, Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]}),
        entry(3, Kind.TOOL_RESULT, {"role": "tool", "tool_call_id": "c", "content": result}),
    ]


def exported_arguments(arguments: str, *, raw: bool = False) -> str:
    line = [*as_jsonl(called(arguments), "s", raw=raw)][2]
    exported = json.loads(line)["message"]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(exported, str)
    return exported


# --- JSONL


def of_kind(message: Message, kind: Kind) -> Kind:
    """The kind drawn, where the message can be of it."""
    own = kind_of(message)
    return (
        kind if own is Kind.USER and kind not in (Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.ASSISTANT) else own
    )


times = st.datetimes().map(lambda time: f"{time.isoformat(timespec='milliseconds')}+00:00") | st.just("")
events = st.sampled_from(
    [
        Recorded("session.opened", 0, {"system": "Be brief.", "lang": "zh"}, TIME),
        Recorded("compaction", 2, {"left": [1, 2], "tokens_before": 9, "tokens_after": 3}, TIME),
        Recorded("summary", 2, {"gist": "what was said"}, TIME),
    ]
)


@given(histories, st.lists(st.sampled_from(Kind), min_size=1), st.lists(times, min_size=1), st.lists(events))
def test_an_exported_session_comes_back_with_the_same_messages_kinds_and_times(
    messages: list[Message], kinds: list[Kind], clock: list[str], happened: list[Recorded]
) -> None:
    entries = [
        entry(n + 1, of_kind(message, kinds[n % len(kinds)]), message, clock[n % len(clock)])
        for n, message in enumerate(messages)
    ]
    settings = {"model": "qwen3:8b", "context_window": 8192}
    exported = "".join(as_jsonl([*happened, *entries], "my session", settings))
    history = read_history(exported.encode())
    assert (history.form, history.session) == ("perdure", "my session")
    assert history.messages == messages
    assert history.kinds == [each.kind for each in entries]
    assert history.times == [each.time for each in entries]
    assert not history.damages
    assert not history.left_out
    told = {"system": "Be brief.", "lang": "zh"} if any(e.type == "session.opened" for e in happened) else {}
    assert history.settings == settings | told
    mended, repairs = history.mended()
    assert ([message for _, message, *_ in mended], repairs) == repair(messages)
    if not repairs:
        assert mended == [(each.kind, each.message, each.time, each.lane) for each in entries]


def test_a_lone_surrogate_comes_back_and_the_file_is_text() -> None:
    exported = "".join(as_jsonl(said("half \ud83d of a character, and a whole 🙂"), "s"))
    assert "\\ud83d of" in exported
    assert "🙂" in exported
    history = read_history(exported.encode())
    assert history.messages[0]["content"] == "half \ud83d of a character, and a whole 🙂"


def test_what_was_taken_back_does_not_come_back() -> None:
    records = [*said("a", "b", "c", "d"), Recorded("turn.undone", 4, {"first": 3, "last": 4}, TIME)]
    history = read_history("".join(as_jsonl(records, "s")).encode())
    assert [message["content"] for message in history.messages] == ["a", "b"]
    assert [each.say("en") for each in history.left_out] == ["2 messages of turns that were taken back"]


def test_an_export_without_entries_is_a_session_without_messages() -> None:
    history = read_history("".join(as_jsonl([], "s", {"model": "m"})).encode())
    assert (history.form, history.messages, history.settings) == ("perdure", [], {"model": "m"})


def test_a_line_shows_what_the_journal_holds() -> None:
    header, first, event = as_jsonl(
        [*said("hi"), Recorded("usage", 1, {"prompt": 3}, TIME)], "s", {"model": "m"}
    )
    assert json.loads(header) == {"perdure": 1, "session": "s", "settings": {"model": "m"}}
    message = {"role": "user", "content": "hi"}
    assert json.loads(first) == {"entry": 1, "kind": "user", "time": TIME, "tokens": 7, "message": message}
    assert json.loads(event) == {"event": "usage", "after": 1, "time": TIME, "body": {"prompt": 3}}


# --- secrets


@pytest.mark.parametrize("write", [as_jsonl, as_markdown, as_html])
def test_secrets_are_masked_everywhere_unless_raw_is_asked_for(write: Any) -> None:
    records = [
        *said(f"the key is {KEY}", f"I have {KEY}"),
        *called(json.dumps({"command": f"export API_KEY={KEY}"}), f"API_KEY={KEY}"),
        Recorded("summary", 3, {"gist": f"the key is {KEY}"}, TIME),
    ]
    settings = {"api_key": KEY, "model": "m", "nested": {"password": "hunter22"}}
    masked, raw = ("".join(write(records, "s", settings, raw=raw)) for raw in (False, True))
    assert KEY not in masked
    assert "hunter22" not in masked
    assert "[secret]" in masked
    assert raw.count(KEY) >= 6
    assert "hunter22" in raw


@pytest.mark.parametrize(
    ("arguments", "masked"),
    [
        ({"command": f"curl -H 'Authorization: Bearer {KEY}' https://x.example"}, None),
        ({"password": "hunter22", "user": "ann"}, {"password": "[secret]", "user": "ann"}),
        ({"login": {"api_key": "a1b2c3d4e5"}}, {"login": {"api_key": "[secret]"}}),
        ({"password": 12345678, "tokens": 4096}, {"password": "[secret]", "tokens": 4096}),
        ({"text": f'line\n"key": "{KEY}"\n'}, None),
    ],
)
def test_arguments_without_their_secrets_are_still_json(arguments: Any, masked: Any) -> None:
    exported = exported_arguments(json.dumps(arguments))
    assert masked is None or json.loads(exported) == masked
    assert isinstance(json.loads(exported), dict)
    assert KEY not in exported
    assert exported_arguments(json.dumps(arguments), raw=True) == json.dumps(arguments)


def test_arguments_without_secrets_stay_as_the_model_wrote_them() -> None:
    for arguments in ('{ "path" :"a.py",  "n":1.0}', "{}", '{"broken', "[1, 2]"):
        assert exported_arguments(arguments) == arguments


json_scalars = st.sampled_from([KEY, "hunter22", "plain", 'qu"ote', "a\nb", 12345678, True, None, 1.5])
json_objects = st.recursive(
    json_scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["password", "api_key", "text", "token", 'o"dd']), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["password", "command", "list"]), json_objects, max_size=3))
def test_any_arguments_stay_json_and_lose_their_keys(arguments: dict[str, Any]) -> None:
    exported = exported_arguments(json.dumps(arguments))
    assert isinstance(json.loads(exported), dict)
    assert KEY not in exported


def test_ids_and_pictures_are_not_taken_for_secrets() -> None:
    call = {"id": KEY, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    like_a_key = "data:image/png;base64,iVBOR/AKIAABCDEFGHIJKLMNOP/+aB="
    shown = [{"type": "image_url", "image_url": {"url": like_a_key}}]
    records: list[Record] = [
        entry(1, Kind.USER, {"role": "user", "content": shown}),
        entry(2, Kind.TOOL_CALL, {"role": "assistant", "content": None, "tool_calls": [call]}),
        entry(3, Kind.TOOL_RESULT, {"role": "tool", "tool_call_id": KEY, "content": "r"}),
    ]
    history = read_history("".join(as_jsonl(records, "s")).encode())
    assert history.messages == [each.message for each in records if isinstance(each, Entry)]


def test_what_only_looks_like_a_picture_and_what_was_damaged_carry_no_secrets() -> None:
    texts = [f"data:text/plain;base64,aGk= my key {KEY}", f"data:image/png;base64,iVBOR= {KEY}"]
    damage = {"line": 3, "bytes": base64.b64encode(KEY.encode()).decode()}
    records: list[Record] = [
        entry(n, Kind.USER, {"role": "user", "content": text}) for n, text in enumerate(texts, 1)
    ]
    records.append(Recorded("import.damage", 2, damage, "2026-01-01T00:00:00+00:00"))
    for exported in ("".join(as_jsonl(records, "s")), markdown(records)):
        assert KEY not in exported
        assert damage["bytes"] not in exported
    assert str(damage["bytes"]) in "".join(as_jsonl(records, "s", raw=True))


# --- Markdown


def markdown(records: Sequence[Record], lang: Language = "en") -> str:
    return "".join(as_markdown(records, "s", lang=lang))


def headings(text: str) -> list[str]:
    tokens = MarkdownIt().parse(text)
    found = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open" and opening.level == 0:
            found.append(re.sub(r"\\(.)", r"\1", inline.content))
    return found


def test_markdown_has_a_heading_for_each_turn_and_each_entry() -> None:
    assert headings(markdown(said("a", "b", "c"))) == [
        "s",
        "Turn 1: a",
        "1 · Person · 2026-01-02 03:04:05 UTC",
        "2 · Assistant · 2026-01-02 03:04:05 UTC",
        "Turn 2: c",
        "3 · Person · 2026-01-02 03:04:05 UTC",
    ]


@given(
    st.lists(st.text(alphabet="`~#>-=|*_[]<!\\ \nab1.", max_size=40), min_size=1, max_size=4), st.booleans()
)
def test_no_text_breaks_out_of_its_place_in_markdown(texts: list[str], by_tools: bool) -> None:
    records: list[Record] = []
    for text in texts:
        records += called(json.dumps({"text": text}), text) if by_tools else said(text, text)
    expected = headings(markdown([*_blank(records)]))
    assert [re.sub(r"(?s)^(Turn \d+): .*", r"\1", each) for each in headings(markdown(records))] == [
        each.partition(":")[0] if each.startswith("Turn") else each for each in expected
    ]


def _blank(records: Sequence[Record]) -> Sequence[Record]:
    return [
        Entry(each.seq, each.kind, {**each.message, "content": ""}, each.tokens, each.time)
        for each in records
        if isinstance(each, Entry)
    ]


@pytest.mark.parametrize("raw", [False, True])
def test_a_turn_begins_with_its_heading_which_shows_the_request(raw: bool) -> None:
    recalled = {"role": "user", "content": "[Excerpts] 1: the port"}
    request = f"Which\nport, <b>*now*</b>? The key is {KEY}. " + "long " * 40
    records: list[Record] = [
        *said("first", "answer"),
        Entry(3, Kind.RECALL, recalled, 7, TIME),
        Entry(4, Kind.USER, {"role": "user", "content": request}, 7, TIME),
        Recorded("recall", 4, {"recalled": []}, TIME),
        Entry(5, Kind.ASSISTANT, {"role": "assistant", "content": "5433"}, 7, TIME),
        Entry(6, Kind.USER, {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}, 7, TIME),
    ]
    shown = headings("".join(as_markdown(records, "s", raw=raw)))
    assert shown[4].startswith("Turn 2: Which port, <b>*now*</b>? The key is ")
    assert ("[secret]" in shown[4], KEY[:9] in shown[4]) == (not raw, raw)
    assert len(shown[4]) < 100
    assert [each.partition(" · ")[0].partition(":")[0] for each in shown] == [
        *("s", "Turn 1", "1", "2", "Turn 2", "3", "4", "5", "Turn 3", "6")
    ]
    page = "".join(as_html(records, "s", raw=raw))
    assert '<h2 dir="auto">Turn 2: Which port, &lt;b&gt;*now*&lt;/b&gt;? The key is ' in page
    assert page.index("Turn 2: ") < page.index('id="e3"') < page.index('id="e4"')
    assert '<a href="#e3"><bdi>Which port, ' in page
    assert "第 2 轮：Which port" in "".join(as_html(records, "s", raw=raw, lang="zh"))


def test_a_fence_is_longer_than_any_inside() -> None:
    fences = [t for t in MarkdownIt().parse(markdown(called("{}", "```\n`````\nx"))) if t.type == "fence"]
    assert fences[-1].content == "```\n`````\nx\n"
    assert fences[-1].markup == "``````"


def test_escape_sequences_do_not_reach_a_terminal() -> None:
    for write in (as_markdown, as_html):
        assert "\x1b" not in "".join(write(called("{}", "\x1b]0;title\x07red\x1b[31m"), "\x1b[2Js"))


VIEWERS = (MarkdownIt("commonmark"), MarkdownIt("commonmark").enable("table"))
for viewer in VIEWERS:
    viewer.validateLink = lambda url: True  # type: ignore[method-assign]
#: What Markdown itself makes of text, and what of it may say where.
ELEMENTS = {"p", "blockquote", "pre", "code", "em", "strong", "ul", "ol", "li", "hr", "br", "a"}
ELEMENTS |= {*(f"h{level}" for level in range(1, 7)), "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"href", "title", "class", "start", "style"}
PIECES = (
    *("<img src=x onerror=alert(1)>", "<script>", "</script>", "<div>", "<!--", "-->", "<?x", "<![CDATA["),
    *("<http://e.example>", "<1`@e.example>", "< ", "<", ">", "![", "!", "[", "](", "]", "(", ")", "]: "),
    *(
        "[a]: ",
        "[a]",
        "http://e.example/x.png",
        "javascript:alert(1)",
        "javascript&colon;x",
        "data:text/html,x",
    ),
    *(
        "`",
        "``",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "\n\t",
        "\n    ",
        "\t",
        "\\",
        "|",
        "|-|",
        "- ",
        "1. ",
        "# ",
        "> ",
    ),
    *("*", "_", "&lt;", "a", " ", '"', "'", "\ue000", "\ue0000\ue000"),
)


def viewed(text: str) -> list[Page]:
    return [Page(viewer.render(text)) for viewer in VIEWERS]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), min_size=1, max_size=3))
def test_a_viewer_makes_nothing_of_a_session_but_text(texts: list[str]) -> None:
    gist = Recorded("summary", 2, {"gist": texts[0]}, TIME)
    for shown in viewed(markdown([*said(*texts), *called(json.dumps({"x": texts[0]}), texts[0]), gist])):
        assert {tag for tag, _ in shown.tags} <= ELEMENTS
        assert {name for _, attributes in shown.tags for name in attributes} <= ATTRIBUTES
        for link in shown.all("a"):
            assert re.match(r"https?:|mailto:|[^:]*(?:[/?#]|\Z)", link["href"] or "", re.IGNORECASE)


@pytest.mark.parametrize(
    "attack",
    [
        *(
            "<img src=x onerror=x>",
            "a\n\n<div onclick=x>\n",
            "<b>",
            "</blockquote>",
            "<!-- ",
            "<a href=x>y</a>",
        ),
        *("![x](http://e.example/p.png)", "![x][r]\n\n[r]: http://e.example/p", "<http://e.example>"),
        *("\\\\<img src=x>", "\\\\![x](y)", "\t<img src=x>", "`\n<div>\n`", "| `a | <img src=x> ` |\n|-|-|"),
        *("[a](x`) <img src=x> `", "<1`@x.com> <img src=x> `", "[x](javascript:alert(1))", "[x]: data:x"),
    ],
)
def test_what_a_viewer_would_run_or_fetch_is_shown_as_it_was_written(attack: str) -> None:
    for shown in viewed(markdown(said(attack, "`<i>` is code"))):
        assert {tag for tag, _ in shown.tags} <= ELEMENTS
        assert not any((each["href"] or "").startswith(("javascript:", "data:")) for each in shown.all("a"))
        assert "<i> is code" in shown.text
        for piece in re.findall(r"<[^>]*>", attack):
            assert piece in shown.text.replace("\\<", "<")


def test_markdown_that_people_and_models_write_still_renders() -> None:
    text = (
        "## Plan\n\n1. *first*, `List<String>` and `![x](y)`\n2. **second** if a < b && c <d> e\n\n"
        "```html\n<img src=x> ![x](y)\n```\n\n    indented <b>\n\n"
        "[page](https://e.example/a_(b)), [place](src/a.py), `a[0]` \\<b>"
    )
    for shown in viewed(markdown(said(text))):
        tags = [tag for tag, _ in shown.tags]
        assert {"h2", "ol", "em", "strong", "pre", "code"} <= set(tags)
        assert [each["href"] for each in shown.all("a")] == ["https://e.example/a_(b)", "src/a.py"]
        for kept in (
            "List<String>",
            " ![x](y)\n",
            "<img src=x> ![x](y)\n",
            "indented <b>",
            "a < b && c <d> e",
        ):
            assert kept in shown.text
        assert "a[0] <b>" in shown.text
        assert "\\" not in shown.text


# --- HTML


class Page(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page(records: Sequence[Record], lang: Language = "en", **more: Any) -> Page:
    return Page("".join(as_html(records, more.pop("session", "s"), lang=lang, **more)))


ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></div></style><iframe src=//evil.example>",
    "<!-- ",
    "&lt;b&gt;",
    "javascript:alert(1)",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_stands_in_a_session_is_only_ever_text(attack: str) -> None:
    plain, attacked = (
        page(
            [
                *said(text, text),
                *called(json.dumps({"x": text}), text),
                entry(
                    4, Kind.NOTICE, {"role": "user", "content": [{"type": "image_url", "image_url": text}]}
                ),
                Recorded("summary", 4, {"gist": text}, TIME),
                Recorded("session.forked", 4, {"from": text, "at": text}, TIME),
            ],
            session=text,
            settings={"model": text},
        )
        for text in ("harmless", attack)
    )
    assert attacked.tags == plain.tags
    assert attacked.text.count(attack) >= 8
    assert not attacked.open


@given(
    st.lists(st.text(max_size=30) | st.sampled_from(ATTACKS), min_size=1, max_size=5),
    st.sampled_from(["en", "zh"]),
)
def test_any_text_makes_a_page_that_closes_what_it_opens(texts: list[str], lang: Language) -> None:
    found = page(said(*texts), lang)
    assert not found.open
    assert not found.all("script")


def test_the_page_asks_for_nothing_and_its_policy_allows_nothing() -> None:
    elsewhere = {"type": "image_url", "image_url": {"url": "https://evil.example/track.png"}}
    carried = {"type": "image_url", "image_url": {"url": PICTURE}}
    svg = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AAAA"}}
    found = page([entry(1, Kind.USER, {"role": "user", "content": [elsewhere, carried, svg]})])
    assert [each["src"] for each in found.all("img")] == [PICTURE]
    assert "https://evil.example/track.png" in found.text
    policy = next(each["content"] for each in found.all("meta") if "http-equiv" in each)
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    targets = [
        value for _, attributes in found.tags for name in ("src", "href") if (value := attributes.get(name))
    ]
    assert all(target.startswith(("#e", "data:image/")) for target in targets)
    assert not any(name.startswith("on") or name == "style" for _, each in found.tags for name in each)


def test_each_entry_has_an_anchor_and_the_turns_are_listed() -> None:
    found = page(said("first", "b", "second", "d"))
    assert [each["id"] for each in found.all("article")] == ["e1", "e2", "e3", "e4"]
    assert {"#e1", "#e3"} <= {each["href"] for each in found.all("a")}
    assert "Turn 2" in found.text


def test_a_long_output_is_folded_and_a_short_one_is_open() -> None:
    assert not page(called("{}", "short")).all("details")
    long = page(called("{}", "\n".join(f"line {n}" for n in range(100))))
    assert len(long.all("details")) == 1
    assert "line 0 (lines: 100)" in long.text
    assert "line 99" in long.text


@pytest.mark.parametrize(
    ("lang", "tag", "words"), [("en", "en", ("Person", "Turn 1")), ("zh", "zh-CN", ("用户", "第 1 轮"))]
)
def test_the_page_speaks_the_language_that_is_asked_for(
    lang: Language, tag: str, words: Sequence[str]
) -> None:
    found = page(said("hi"), lang)
    assert found.all("html")[0]["lang"] == tag
    assert all(word in found.text and word in markdown(said("hi"), lang) for word in words)


def test_text_has_its_own_direction_and_language() -> None:
    texts = [each for each in page(said("مرحبا", "你好，世界")).all("div") if each.get("class") == "text"]
    assert [each["dir"] for each in texts] == ["auto", "auto"]
    assert [each["lang"] for each in texts] == ["", "zh-CN"]


def test_a_reader_sees_what_was_compacted_and_what_was_taken_back() -> None:
    records = [
        *said("a", "b", "c", "d"),
        Recorded("compaction", 4, {"left": [1, 2], "tokens_before": 900, "tokens_after": 300}, TIME),
        Recorded("turn.undone", 4, {"first": 3, "last": 4}, TIME),
        Recorded("forgotten", 4, {"entries": [1]}, TIME),
    ]
    for text in (page(records).text, markdown(records)):
        assert "900 tokens became 300; entries that left it: 2" in text
        assert text.count("taken back") == 2
        assert "Entries forgotten: 1" in text
