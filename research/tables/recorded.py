"""What a local model gives of real answers: recordings for every score, and fitted scores.

    python -m research.tables.recorded DATA MODEL TABLES NAME [STEP ...]

DATA holds the original files in `ragtruth/` and `halueval/`, MODEL is a hub name, a folder or a .gguf file, NAME is
ragtruth (its question answering), qa, dialogue or summarization (HaluEval's tasks). Steps, all by default:

    scores    TABLES/NAME.parquet, the scores that draw nothing and fit nothing, as `fedsrc score` writes them
              (halueval-NAME.parquet for HaluEval)
    judged    what the model says of each answer as a judge: log-probabilities of two verdicts, and its words
    signals   mechanistic signals of the answers
    samples   responses to each prompt: for RAGTruth 20 of at most 256 tokens, for HaluEval 10 of at most 64 or 128
    fitted    of RAGTruth alone: TABLES/ragtruth-fitted.parquet with id, part, probe and detector, and
              ragtruth-fitted.json with AUCs on development sources

`judged`, `signals` and `samples` are of the answers that `research.tables.scores` compares: RAGTruth's train split, 600
pairs of a HaluEval task. Recordings lie in TABLES/recordings: a step that was stopped resumes, and the tables of
`research.tables.scores` follow from them without the model. Steps that write different files (`scores` and `judged`
share one) may run beside each other. Probe and detector are fitted on the development part of the train sources, by a
hash of the source; in the table, the probe's scores of that part are out of fold, the detector's in sample.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Final, Literal, cast

import numpy as np
import polars as pl

from fedsrc.data.answers import Answer
from fedsrc.data.embedded import TASKS, Task
from fedsrc.data.halueval import read_halueval
from fedsrc.data.ragtruth import read_noted
from fedsrc.data.split import assign
from fedsrc.scores.catalogue import BASIC, JUDGED, Settings
from fedsrc.scores.fitted.development import folds_of, labels_of
from fedsrc.scores.fitted.fit import fitted_combination, fitted_detector, fitted_probe
from fedsrc.scores.fitted.supervised import pairs_of, score_with
from fedsrc.scores.methods.judge import GREEDY
from fedsrc.scores.models.backends import open_model
from fedsrc.scores.models.model import Sampling, Wanted
from fedsrc.scores.models.transformers_model import TransformersModel
from fedsrc.scores.opening import ModelChoices
from fedsrc.scores.prompts import prompt
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.recordings.signal_recording import SignalRecording, beside
from fedsrc.scores.score_answers import score_file
from fedsrc.scores.scoring import Means, score_answers
from research.tables.drawing import Together, shares
from research.tables.embedded import PAIRS
from research.tables.scores import COUNTS, halueval_parts

Name = Task | Literal["ragtruth"]
RAGTRUTH: Final = "ragtruth"
SEED, SHARES = 0, {"development": 0.3, "calibration": 0.5, "evaluation": 0.2}
TOKENS = {RAGTRUTH: 256, "qa": 64, "dialogue": 64, "summarization": 128}  # of a drawn response, at most
NARROWER = 3  # tokens of the stretch that was best on development sources
AT_ONCE = 256  # answers whose signals a stop may lose
DRAWN_AT_ONCE = 80  # prompts whose responses it may


@dataclass(frozen=True)
class Job:
    """A set of answers, the model, and where things are written."""

    data: Path
    weights: str
    tables: Path
    name: Name

    @cached_property
    def model(self) -> TransformersModel:
        return open_model(self.weights, revision=None, device="auto", dtype="auto")

    @cached_property
    def answers(self) -> list[Answer]:
        """All answers of the set."""
        if self.name == RAGTRUTH:
            return [answer for answer, _ in read_noted(self.data / RAGTRUTH) if answer.group == "QA"]
        return read_halueval(self.data / "halueval", self.name, pairs=PAIRS[self.name])

    @cached_property
    def compared(self) -> list[Answer]:
        """Those that every score is compared on."""
        if self.name == RAGTRUTH:
            return [answer for answer in self.answers if answer.split == "train"]
        return [answer for part in halueval_parts(self.data, self.name).values() for answer in part]

    @property
    def recording(self) -> Path:
        return self.tables / "recordings" / f"{self.name}.jsonl"

    @cached_property
    def parts(self) -> dict[str, str]:
        """Development, calibration or evaluation, by the source of RAGTruth's train split."""
        return {**assign(self.compared, SEED, SHARES)}

    def part(self, answer: Answer) -> str:
        return self.parts[answer.source] if answer.split == "train" else "test"

    def shown(self, step: str) -> Callable[[int, int], None]:
        return lambda done, of: print(f"{self.name} {step}: {done:,} of {of:,}", flush=True)


def scores(job: Job) -> None:
    """Write the answers, and score them without drawing or fitting."""
    name = job.name if job.name == RAGTRUTH else f"halueval-{job.name}"
    answers, target = (job.tables / f"{name}{ending}" for ending in (".jsonl", ".parquet"))
    rows = ({key: value for key, value in asdict(each).items() if key != "scores"} for each in job.answers)
    answers.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    choices = ModelChoices(model=job.weights, recording=job.recording)
    score_file(answers, target, list(BASIC), choices=choices, settings=Settings(), done=job.shown("scores"))


def judged(job: Job) -> None:
    """Record verdicts and replies."""
    replies = SampleRecording(beside(job.recording, "replies"), job.model, GREEDY)
    means = Means(replies=replies, tokens=Recording(job.recording, job.model))
    shown, count = job.shown("judged"), len(job.compared)
    score_answers(job.compared, list(JUDGED), Settings(), means, lambda done: shown(done, count))


def signals(job: Job) -> None:
    """Record mechanistic signals."""
    kept, shown = SignalRecording(beside(job.recording, "signals"), job.model), job.shown("signals")
    pairs = pairs_of(job.compared, "present")
    for start in range(0, len(pairs), AT_ONCE):
        kept.signals(pairs[start : start + AT_ONCE])
        shown(min(start + AT_ONCE, len(pairs)), len(pairs))


def samples(job: Job) -> None:
    """Record drawn responses, those of many prompts at once: a GPU draws a thousand as fast as a hundred."""
    how, count = Sampling(max_tokens=TOKENS[job.name]), max(COUNTS[RAGTRUTH if job.name == RAGTRUTH else "halueval"])
    drawer = Together(job.model) if shares(job.model) else job.model
    kept, shown = SampleRecording(beside(job.recording, "samples"), drawer, how), job.shown("samples")
    prompts = list(dict.fromkeys(prompt(answer, answer.evidence) for answer in job.compared))
    for start in range(0, len(prompts), DRAWN_AT_ONCE):
        some = prompts[start : start + DRAWN_AT_ONCE]
        kept.sample([Wanted(each, place) for each in some for place in range(count)])
        shown(start + len(some), len(prompts))


def fitted(job: Job) -> None:
    """Fit the probe and the detector on development answers, and score every answer with both."""
    development = [answer for answer in job.answers if job.part(answer) == "development"]
    others = [answer for answer in job.answers if job.part(answer) != "development"]
    fits = {
        "probe": fitted_probe(development, job.model),
        "narrower probe": fitted_probe(development, job.model, width=NARROWER),
        "combination": fitted_combination(development, job.model),
        "detector": fitted_detector(development, job.model, cross_validate=True, tell=partial(print, flush=True)),
    }
    unseen = {name: score_with(fits[name].parameters, others, job.model) for name in ("probe", "detector")}
    seen = {
        "probe": _out_of_fold(development, job.model),
        "detector": score_with(fits["detector"].parameters, development, job.model),
    }
    about = {
        "id": [answer.id for answer in development + others],
        "part": [job.part(answer) for answer in development + others],
    }
    columns = {name: seen[name] + unseen[name] for name in seen}
    pl.DataFrame({**about, **columns}).write_parquet(job.tables / "ragtruth-fitted.parquet")
    found = {name: each.auc for name, each in fits.items()}
    (job.tables / "ragtruth-fitted.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _out_of_fold(answers: Sequence[Answer], model: TransformersModel) -> list[float]:
    """Return the probe's scores of development answers, each source scored by a fit on four fifths without it."""
    folds, found = folds_of(answers, labels_of(answers)), np.zeros(len(answers))
    for fold in np.unique(folds):
        own, rest = (np.flatnonzero(places).tolist() for places in (folds == fold, folds != fold))
        fit = fitted_probe([answers[i] for i in rest], model)
        found[own] = score_with(fit.parameters, [answers[i] for i in own], model)
    return [float(each) for each in found]


STEPS: dict[str, Callable[[Job], None]] = {
    "scores": scores, "judged": judged, "signals": signals, "samples": samples, "fitted": fitted,
}  # fmt: skip


def main() -> None:
    if len(sys.argv) < 5 or sys.argv[4] not in (RAGTRUTH, *TASKS) or not set(sys.argv[5:]) <= set(STEPS):
        sys.exit(f"usage: python -m research.tables.recorded DATA MODEL TABLES NAME [{' '.join(STEPS)}]")
    job = Job(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), cast("Name", sys.argv[4]))
    job.recording.parent.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[5:] or [step for step in STEPS if step != "fitted" or job.name == RAGTRUTH]:
        STEPS[name](job)


if __name__ == "__main__":
    main()
