"""What is about a query comes first, whoever said it and in whatever language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.chat.messages import Kind
from perdure.memory.passages import SEARCHED, Corpus, Passage, Pool, Query, moment
from perdure.memory.ranking import ranked, relevant, within
from perdure.memory.signs import signs
from perdure.memory.words import words_of

DIMENSIONS = 8
DAY = "2026-03-{:02d}T10:00:00.000+00:00"
#: Talk about other things, so that a word can be rare.
TALK = [
    f"Note {number}: we looked at the {thing} and went on with the work."
    for number, thing in enumerate(
        [
            "garden",
            "bridge",
            "kettle",
            "ladder",
            "printer",
            "cellar",
            "window",
            "violin",
            "carpet",
            "engine",
            "basket",
            "mirror",
        ]
        * 4
    )
]


def passage(id: int, text: str, *, time: str = DAY.format(1), kind: Kind = Kind.USER) -> Passage:
    return Passage(id, "s", id, 0, kind, time, text, tuple(words_of(text)))


def query(text: str, vector: Sequence[float] | None = None) -> Query:
    given = None if vector is None else numpy.array(vector, numpy.float32)
    return Query(text, tuple(words_of(text)), given, "" if vector is None else "test")


def pool(passages: Sequence[Passage], vectors: object = None, candidate: object = None) -> Pool:
    """A pool of all there is."""
    holding = Counter(word for each in passages for word in set(each.words))
    words = sum(len(each.words) for each in passages)
    rows = numpy.zeros((len(passages), DIMENSIONS)) if vectors is None else numpy.array(vectors)
    chosen = numpy.ones(len(passages), bool) if candidate is None else numpy.array(candidate, bool)
    corpus = Corpus(len(passages), words / max(len(passages), 1), holding, (0.0, 0.3))
    return Pool(passages, rows.astype(numpy.float32), chosen, corpus)


def among_talk(*texts: str, apart: int = 6) -> Pool:
    """The texts, each a day later than the one before, with other talk around them."""
    said: list[Passage] = []
    for number, text in enumerate(texts):
        talk = TALK[number * apart : (number + 1) * apart]
        for each in (*talk, text):
            said.append(passage(len(said) + 1, each, time=DAY.format(number + 1)))
    return pool([*said, *(passage(len(said) + 1 + at, each) for at, each in enumerate(TALK[-20:]))])


def first(asked: str, found: Pool, count: int = 1) -> list[str]:
    return [each.passage.text for each in ranked(query(asked), found)[:count]]


texts = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "Ines: ",
                "[day 1] Max: ",
                "when",
                "Max",
                "5 May",
                "2026-13-99",
                "99月99日",
                "0月",
                "?",
                "端口",
                "a.b",
            ]
        ),
        max_size=12,
    ).map(" ".join),
)
passages = st.builds(
    lambda id, text, time, kind, part: Passage(id, "s", id, part, kind, time, text, tuple(words_of(text))),
    id=st.integers(1, 40),
    text=texts,
    time=st.sampled_from([DAY.format(1), DAY.format(9), "", "yesterday"]),
    kind=st.sampled_from(sorted(SEARCHED)),
    part=st.integers(0, 3),
)
several = st.lists(passages, max_size=12, unique_by=lambda each: each.id).map(
    lambda found: sorted(found, key=lambda each: each.id)
)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    found = draw(several)
    number = st.floats(-1, 1, width=32)
    row = st.one_of(st.just([0.0] * DIMENSIONS), st.lists(number, min_size=DIMENSIONS, max_size=DIMENSIONS))
    vectors = [draw(row) for _ in found]
    candidate = [draw(st.booleans()) for _ in found]
    return pool(found, numpy.array(vectors).reshape(len(found), DIMENSIONS), candidate)


vectors = st.one_of(st.none(), st.lists(st.floats(-1, 1, width=32), min_size=DIMENSIONS, max_size=DIMENSIONS))


@given(pools(), texts, vectors)
def test_every_candidate_is_ranked_once_and_none_that_is_a_neighbour_only(
    found: Pool, asked: str, vector: list[float] | None
) -> None:
    scored = ranked(query(asked, vector), found)
    chosen = [each for each, is_one in zip(found.passages, found.candidate, strict=True) if is_one]
    assert sorted(each.passage.id for each in scored) == [each.id for each in chosen]
    scores = [each.score for each in scored]
    assert scores == sorted(scores, reverse=True)
    assert all(numpy.isfinite(score) for score in scores)
    assert scored == ranked(query(asked, vector), found)


@given(pools(), texts, vectors)
def test_what_is_relevant_is_some_of_it_in_the_same_order(
    found: Pool, asked: str, vector: list[float] | None
) -> None:
    scored = ranked(query(asked, vector), found)
    about = relevant(query(asked, vector), found, scored)
    left = iter(scored)
    assert all(each in left for each in about)


@given(pools(), texts, st.integers(-5, 200))
def test_what_is_placed_fits_and_stands_as_it_happened(found: Pool, asked: str, limit: int) -> None:
    def full(each: Passage) -> int:
        return len(each.text) + 9

    def short(each: Passage) -> int:
        return len(each.text) + 2

    chosen = within(ranked(query(asked), found), limit, full, short)
    assert [each.id for each in chosen] == sorted({each.id for each in chosen})
    last: tuple[str, str] | None = None
    tokens = 0
    for each in chosen:
        tokens += short(each) if moment(each) == last else full(each)
        last = moment(each)
    assert tokens <= max(limit, 0)


def test_what_a_clock_turned_back_has_torn_apart_is_counted_as_it_stands() -> None:
    said = [passage(id, f"ship {id}", time=DAY.format(1 + id % 2)) for id in range(1, 7)]
    scored = ranked(query("ship"), pool(said))
    chosen = within(scored, 60, lambda each: 14, lambda each: 10)
    assert len(chosen) == 4  # 14 each, as none stands behind one of its moment


@given(pools(), texts, st.integers(0, 200))
def test_without_a_price_for_the_next_one_each_is_counted_whole(found: Pool, asked: str, limit: int) -> None:
    chosen = within(ranked(query(asked), found), limit, lambda each: len(each.text) + 9)
    assert sum(len(each.text) + 9 for each in chosen) <= limit


def test_of_an_empty_pool_nothing_is_found() -> None:
    assert ranked(query("anything"), pool([])) == []
    assert relevant(query("anything"), pool([]), []) == []
    assert within([], 100, lambda each: 1) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            "Where does our mascot, the wombat, live?",
            "Our mascot is a wombat called Gregory, who lives in Delft.",
        ),
        ("which port does the proxy listen on?", "The proxy listens on port 8443 now."),
        ("fix the failing test in src/app.py", "FAILED src/app.py::test_login - KeyError: 'user'"),
        ("what was MAX_RETRY_COUNT set to", "export MAX_RETRY_COUNT=5"),
        ("部署端口是多少？", "部署的端口是 9527，别忘了。"),
        ("我的猫叫什么名字？", "我家的猫名字叫豆豆。"),
        ("数据库为什么连接超时", "错误：数据库连接超时，已重试三次"),
    ],
)
def test_by_words_alone_what_answers_a_request_comes_first(asked: str, said: str) -> None:
    assert first(asked, among_talk("The weather is fine.", said, "Lunch was good.")) == [said]


def test_by_meaning_what_shares_no_word_comes_first() -> None:
    found = among_talk("The cat sleeps on the sofa.", "Rent is due on Fridays.")
    at = [each.text for each in found.passages].index("The cat sleeps on the sofa.")
    rows = numpy.zeros((len(found.passages), DIMENSIONS))
    rows[:, 1] = 1
    rows[at] = [1, 0, 0, 0, 0, 0, 0, 0]
    found = pool(found.passages, rows)
    best = ranked(query("Where does my pet rest?", [1, 0, 0, 0, 0, 0, 0, 0]), found)[0]
    assert best.passage.text == "The cat sleeps on the sofa."


def test_an_answer_beside_the_words_of_its_question_is_found() -> None:
    found = among_talk("Which colour shall the zeppelin have?", "Lunch was good.")
    at = [each.text for each in found.passages].index("Which colour shall the zeppelin have?")
    said = list(found.passages)
    said[at + 1] = passage(at + 2, "Turquoise.")
    assert "Turquoise." in first("colour of the zeppelin", pool(said), 3)
    said[at - 1] = passage(at, "Turquoise.")
    places = [each.passage.id - at for each in ranked(query("colour of the zeppelin"), pool(said))]
    assert places.index(2) < places.index(0)


def test_of_two_near_ties_the_newer_one_comes_first_or_both_do() -> None:
    old, new = "day 1: Ines works at the harbour office", "day 9: Ines moved to the airport desk"
    assert set(first("where does Ines work?", among_talk(old, new), 2)) == {old, new}


def test_of_two_that_are_alike_the_newer_one_comes_first() -> None:
    found = among_talk("The build is green.", "The build is green.")
    best, second = ranked(query("is the build green"), found)[:2]
    assert best.passage.id > second.passage.id


def test_what_holds_the_very_words_comes_first_in_a_session_of_few_entries_too() -> None:
    said = ["The deploy key is in the vault.", "Is the vault open?", "The vault's deploy key is not in use."]
    assert first(
        "deploy key is in the vault", pool([passage(id, text) for id, text in enumerate(said, 1)])
    ) == [said[0]]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("Which port does staging use?", "For staging, use the port 54329."),
        ("网关密钥什么时候轮换？", "网关密钥每月十七号轮换。"),
    ],
)
def test_a_question_that_was_asked_often_comes_behind_its_answer(asked: str, answer: str) -> None:
    found = among_talk(asked, asked, answer, asked, asked)
    order = first(asked, found, len(found.passages))
    assert order.index(answer) < order.index(asked)
    placed = [each.passage.text for each in relevant(query(asked), found, ranked(query(asked), found))]
    assert answer in placed
    assert asked not in placed


def test_what_was_said_again_and_again_is_placed_once_as_it_was_said_last() -> None:
    said = ["The port is 8080.", "The port is 9090.", "the port  is 8080.", "The port is 9091."]
    found = pool([passage(id, text, time=DAY.format(id)) for id, text in enumerate(said, 1)])
    placed = within(ranked(query("what is the port"), found), 1_000, lambda each: 10)
    assert [each.text for each in placed] == said[1:]


def test_a_day_that_is_asked_for_is_preferred() -> None:
    found = among_talk("We met the architect.", "We met the architect.", "We met the architect.")
    for asked in ("What did we do on 2 March?", "march 2nd: what did we do", "2026-03-02?", "3月2日做了什么"):
        assert ranked(query(f"{asked} architect"), found)[0].passage.time == DAY.format(2), asked


def test_whom_the_request_names_is_preferred_where_passages_begin_with_names() -> None:
    found = among_talk("Ines: I bought a boat.", "Max: I bought a boat.")
    for name in ("Ines", "Max"):
        assert first(f"What did {name} buy?", found) == [f"{name}: I bought a boat."]
    unnamed = among_talk("Ines: I bought a boat.", "I bought Ines a boat.")
    assert first("What did Ines buy?", unnamed) == ["Ines: I bought a boat."]
    assert not signs(query("what was bought?"), found)["speaks"].any()


@pytest.mark.parametrize(
    "request_", ["yes, go on", "Go on.", "继续", "好的，继续吧", "Thanks, nothing else.", "ok", ""]
)
def test_nothing_is_relevant_to_a_request_that_says_nothing(request_: str) -> None:
    found = among_talk("Our mascot is a wombat.", f"{request_} Yes, the build is green.", "继续跑测试")
    assert relevant(query(request_), found, ranked(query(request_), found)) == []


@pytest.mark.parametrize(
    "request_", ["What is the capital of Mongolia?", "帮我写一封辞职信", "translate 'Guten Morgen'"]
)
def test_nothing_is_relevant_to_what_was_never_spoken_of(request_: str) -> None:
    found = among_talk("Our mascot is a wombat.", "The build is green.")
    assert relevant(query(request_), found, ranked(query(request_), found)) == []


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("When do we deploy?", "We deploy on Thursdays at 14:30 with make ship."),
        ("What time do we deploy?", "We deploy on Thursdays at 14:30 with make ship."),
        ("Wombat?", "Our mascot is a wombat."),
        ("发票放在哪里？", "发票放在 /srv/invoices。"),
    ],
)
def test_a_request_that_tells_but_one_thing_is_about_the_few_that_speak_of_it(
    request_: str, said: str
) -> None:
    found = among_talk(said)
    about = relevant(query(request_), found, ranked(query(request_), found))
    assert [each.passage.text for each in about[:1]] == [said]


def test_a_request_that_tells_but_one_thing_is_not_about_what_all_speak_of() -> None:
    often = among_talk(*(f"We deploy on day {number}." for number in range(40)))
    asked = query("When do we deploy?")
    assert relevant(asked, often, ranked(asked, often)) == []


@pytest.mark.parametrize("request_", ["Where does our mascot, the wombat, live?", "吉祥物袋熊住在哪里？"])
def test_what_was_spoken_of_is_relevant(request_: str) -> None:
    said = (
        "Our mascot is a wombat called Gregory, who lives in Delft.",
        "我们的吉祥物是一只袋熊，住在代尔夫特。",
    )
    found = among_talk(*said)
    about = relevant(query(request_), found, ranked(query(request_), found))
    assert about
    assert about[0].passage.text in said
    assert len(about) < len(found.passages) / 2
