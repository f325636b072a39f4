"""A GGUF file run by llama.cpp itself, in its own quantised arithmetic: token scores and drawn responses on a CPU.

Optional: `llama-cpp-python` is built from source, which takes minutes. Prompt and response are tokenised apart, as
everywhere here; a prompt is read once for all its responses, which continue from its keys and values one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.common.canonical import file_digest
from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.drawing import chances, cut, pick
from fedsrc.scores.models.model import Prompted, Sample, Sampling, TokenScores, Wanted, no_token, too_many_tokens
from fedsrc.scores.models.token_text import spans_of_bytes
from fedsrc.scores.models.torch_tools import Response
from fedsrc.scores.prompts import by_prompt

FLAGS = "-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DLLAVA_BUILD=OFF"
HINT = f'CMAKE_ARGS="{FLAGS}" pip install llama-cpp-python==0.3.36 --no-binary llama-cpp-python'


class LlamaCppModel:
    """A model that llama.cpp holds. Build one with `load_llama_cpp`."""

    def __init__(self, library: Any, llama: Any, identity: dict[str, str]) -> None:
        self._library, self._llama, self.identity = library, llama, identity
        self._vocabulary = library.llama_model_get_vocab(llama.model)
        self._memory = library.llama_get_memory(llama.ctx)
        self.limit = int(llama.n_ctx())
        self._batch = int(library.llama_n_batch(llama.ctx))

    def score(self, pairs: Sequence[Prompted]) -> list[TokenScores]:
        """Score every pair; results come in the order of the pairs."""
        responses = {text: self._response(text) for text in dict.fromkeys(pair.response for pair in pairs)}
        found: dict[int, TokenScores] = {}
        for prompt, places in by_prompt(pair.prompt for pair in pairs).items():
            longest = max(len(responses[pairs[i].response].ids) for i in places)
            start, first = self._prompt(prompt, longest)
            for i in places:
                found[i] = self._score(responses[pairs[i].response], start, first)
        return [found[i] for i in range(len(pairs))]

    def _score(self, response: Response, start: int, first: Floats) -> TokenScores:
        with self._after(start):
            rows = [first, *self._decode(response.ids[:-1], start, last_only=False)]
        logprobs = np.array([row[token] for row, token in zip(rows, response.ids, strict=True)])
        entropy = np.array([max(0.0, float(-(np.exp(row) * row).sum())) for row in rows])
        return TokenScores(response.tokens, np.minimum(logprobs, 0.0), entropy, response.offsets)

    def sample(self, wanted: Sequence[Wanted], how: Sampling) -> list[Sample]:
        """Draw responses one after the other, each with random numbers of its own."""
        found: dict[int, Sample] = {}
        for prompt, places in by_prompt(each.prompt for each in wanted).items():
            start, first = self._prompt(prompt, how.max_tokens)
            for i in places:
                found[i] = self._sample(wanted[i], how, start, first)
        return [found[i] for i in range(len(wanted))]

    def _sample(self, wanted: Wanted, how: Sampling, start: int, row: Floats) -> Sample:
        ids: list[int] = []
        logprobs: list[float] = []
        shorter, ended = None, False
        with self._after(start):
            for chance in chances(wanted, how.seed, how.max_tokens):
                token = pick(row, float(chance), how)
                logprobs.append(min(0.0, float(row[token])))
                ended = bool(self._library.llama_vocab_is_eog(self._vocabulary, token))
                if ended:
                    break
                ids.append(token)
                shorter = cut(self._text(ids), how.stops)
                if shorter is not None:
                    break
                if len(ids) < how.max_tokens:
                    row = self._decode([token], start + len(ids) - 1, last_only=True)[-1]
        text = self._text(ids) if shorter is None else shorter
        return Sample(text, np.asarray(logprobs), ended or shorter is not None)

    def too_long(self, pairs: Sequence[Prompted]) -> list[int]:
        """Return the places of pairs that do not fit into the model's context."""
        sizes = {text: self.tokens(text) for pair in pairs for text in pair}
        return [i for i, (prompt, response) in enumerate(pairs) if sizes[prompt] + sizes[response] >= self.limit]

    def tokens(self, text: str) -> int:
        """Return how many tokens a text has, for evidence controls of matched length."""
        return len(self._ids(text))

    def _ids(self, text: str) -> list[int]:
        """Return a text as tokens, with nothing added; what looks like a control token in it is plain text."""
        return list(self._llama.tokenize(text.encode(), add_bos=False, special=False)) if text else []

    def _response(self, text: str) -> Response:
        ids = self._ids(text)
        if not ids:
            raise no_token()
        data, pieces = text.encode(), [self._piece(each) for each in ids]
        joined = b"".join(pieces)
        if joined not in (data, b" " + data):
            raise FedsrcError("the tokens of a response do not spell it", hint="use `backend='transformers'`")
        spans = spans_of_bytes(data, [len(each) for each in pieces], len(joined) - len(data))
        return Response("", ids, tuple(each.decode(errors="replace") for each in pieces), spans)

    def _piece(self, token: int) -> bytes:
        buffer = bytearray(256)
        view = (self._library.ctypes.c_char * len(buffer)).from_buffer(buffer)
        size = self._library.llama_token_to_piece(self._vocabulary, token, view, len(buffer), 0, True)
        return bytes(buffer[: max(0, size)])

    def _text(self, ids: Sequence[int]) -> str:
        return b"".join(map(self._piece, ids)).decode(errors="ignore")

    def _prompt(self, prompt: str, more: int) -> tuple[int, Floats]:
        """Read a prompt; return how many tokens it has, and the log-probabilities of what comes next."""
        starts = bool(self._library.llama_vocab_get_add_bos(self._vocabulary))
        bos = int(self._library.llama_vocab_bos(self._vocabulary))
        ids = [*([bos] if starts else []), *self._ids(prompt)] or [bos]
        if len(ids) + more > self.limit:
            raise too_many_tokens(len(ids) + more, self.limit)
        self._library.llama_memory_clear(self._memory, True)
        return len(ids), self._decode(ids, 0, last_only=True)[-1]

    @contextmanager
    def _after(self, start: int) -> Iterator[None]:
        """Forget whatever is read inside, from `start` on."""
        try:
            yield
        finally:
            self._library.llama_memory_seq_rm(self._memory, 0, start, -1)

    def _decode(self, ids: Sequence[int], start: int, *, last_only: bool) -> list[Floats]:
        """Read tokens from a place on; return the log-probabilities after each of them, or after the last alone."""
        library, found = self._library, []
        for first in range(0, len(ids), self._batch):
            part = ids[first : first + self._batch]
            batch = library.llama_batch_init(len(part), 0, 1)
            try:
                wanted = [not last_only or first + i == len(ids) - 1 for i in range(len(part))]
                batch.n_tokens = len(part)
                for i, token in enumerate(part):
                    batch.token[i], batch.pos[i], batch.logits[i] = token, start + first + i, wanted[i]
                    batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
                if library.llama_decode(self._llama.ctx, batch):
                    raise FedsrcError("llama.cpp could not read a text", hint="use a smaller model or a shorter text")
                found += [self._row(i) for i, each in enumerate(wanted) if each]
            finally:
                library.llama_batch_free(batch)
        return found

    def _row(self, place: int) -> Floats:
        pointer = self._library.llama_get_logits_ith(self._llama.ctx, place)
        logits = np.ctypeslib.as_array(pointer, shape=(self._llama.n_vocab(),)).astype(np.float64)
        logits -= logits.max()
        return np.asarray(logits - np.log(np.exp(logits).sum()), dtype=np.float64)


def load_llama_cpp(path: Path) -> LlamaCppModel:
    """Load a model from a GGUF file, with the context it was trained for. The file's digest is its revision."""
    try:
        import llama_cpp
    except ImportError as error:
        raise FedsrcError("the llama.cpp backend needs llama-cpp-python", hint=HINT) from error
    if not path.is_file():
        raise FedsrcError("there is no such model file", where=str(path))
    try:
        llama = llama_cpp.Llama(str(path), n_ctx=0, verbose=False)
    except (ValueError, RuntimeError, OSError) as error:
        raise FedsrcError(f"cannot be loaded: {error}", where=str(path), hint="check the file") from error
    identity = {
        "model": path.name,
        "revision": file_digest(path),
        "backend": f"llama.cpp, llama-cpp-python {llama_cpp.__version__}",
        "dtype": "as in the file",
        "tokenizer": "llama.cpp's, from the file",
    }
    return LlamaCppModel(llama_cpp, llama, identity)
