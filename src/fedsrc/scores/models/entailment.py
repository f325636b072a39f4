"""Entailment: whether one text follows from another, by a classifier of sentence pairs (natural language inference).

Any sequence classifier by hub name or folder will do that names its labels entailment, neutral and contradiction in its
configuration (microsoft/deberta-large-mnli does). A pair longer than the classifier takes has its longer text cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.torch_tools import Known, batches, load_encoder, memory, need

BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}
LABELS = ("entailment", "neutral", "contradiction")


class Pair(NamedTuple):
    """Does the hypothesis follow from the premise?"""

    premise: str
    hypothesis: str


class Entails(Protocol):
    """What judges pairs. `identity` goes into the manifest."""

    @property
    def identity(self) -> dict[str, str]: ...

    def judge(self, pairs: Sequence[Pair]) -> Floats:
        """Return a row a pair: probability of entailment, neutral, contradiction."""
        ...


class EntailmentClassifier:
    """A sequence classifier and its tokenizer. Build one with `load_entailment`."""

    def __init__(self, classifier: Any, tokenizer: Any, identity: dict[str, str]) -> None:
        self._classifier, self._tokenizer, self.identity = classifier, tokenizer, identity
        self._columns = label_columns(classifier.config.id2label)
        self._budget = BATCH_TOKENS.get(classifier.device.type, BATCH_TOKENS["cpu"])
        known = (tokenizer.model_max_length, classifier.config.max_position_embeddings - 2)
        self._longest = min(512, *(int(each) for each in known))

    def judge(self, pairs: Sequence[Pair]) -> Floats:
        """Return a row a pair, in order, whatever the batches were."""
        torch = need("torch")
        sides = [list(side) for side in zip(*pairs, strict=True)]
        given = self._tokenizer(*sides, truncation="longest_first", max_length=self._longest)
        found = np.zeros((len(pairs), len(LABELS)))
        with torch.inference_mode(), memory():
            for batch in batches([len(ids) for ids in given["input_ids"]], self._budget):
                rows = {name: [values[i] for i in batch] for name, values in given.items()}
                logits = self._classifier(
                    **self._tokenizer.pad(rows, return_tensors="pt").to(self._classifier.device)
                ).logits
                found[batch] = torch.softmax(logits.float()[:, self._columns], dim=1).double().cpu().numpy()
        return found


def label_columns(labels: dict[int, str]) -> list[int]:
    """Return where a classifier puts entailment, neutral and contradiction."""
    named = {str(name).lower(): int(place) for place, name in labels.items()}
    if set(named) != set(LABELS):
        hint = "use a model trained for natural language inference that names them in its config.json"
        raise FedsrcError(f"the classifier's labels are {', '.join(sorted(named))}, not {', '.join(LABELS)}", hint=hint)
    return [named[label] for label in LABELS]


def load_entailment(name: str, *, device: str = "cpu") -> EntailmentClassifier:
    """Load a classifier by hub name or folder."""
    return EntailmentClassifier(*load_encoder("AutoModelForSequenceClassification", name, device))


class Entailed(Known[Pair]):
    """Pairs with their probabilities."""

    def __init__(self, entails: Entails) -> None:
        super().__init__(entails.judge)

    def probabilities(self, pair: Pair) -> Floats:
        """Return the probability of entailment, neutral and contradiction."""
        self.add([pair])
        return self._known[pair]

    def both_ways(self, one: str, other: str) -> bool:
        """Return whether entailment is the likeliest in both directions."""
        return all(self.probabilities(Pair(*pair)).argmax() == 0 for pair in ((one, other), (other, one)))

    def contradiction(self, premise: str, hypothesis: str) -> float:
        """Return the probability of contradiction among entailment and contradiction."""
        entailment, _, contradiction = self.probabilities(Pair(premise, hypothesis))
        return float(contradiction / (entailment + contradiction))
