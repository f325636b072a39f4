"""Tables of every score on the same answers, for the studies scores-ragtruth and scores-halueval and their page.

    python -m research.tables.scores DATA RECORDINGS FITTED EMBEDDING TABLES [NAME ...]

DATA holds the original files in `ragtruth/` and `halueval/`, EMBEDDING is all-MiniLM-L6-v2, FITTED is the table
`ragtruth-fitted.parquet` (id, part, probe, detector), RECORDINGS has, for each NAME of ragtruth, qa, dialogue and
summarization (or of those given), what `fedsrc score` recorded of one model; `research.tables.recorded` makes both for
RAGTruth:

    NAME.jsonl           token scores, with those of the judge's two answers
    NAME.replies.jsonl   the judge's words
    NAME.signals.jsonl   mechanistic signals
    NAME.samples.jsonl   drawn responses, 20 a prompt for RAGTruth and 10 for HaluEval

Nothing here needs the language model itself; texts are embedded on this machine, and their vectors are kept in TABLES.
In TABLES, NAME-scores.parquet holds the unseen answers, NAME-scores-development.parquet those that fits and the choice
of a score may see. There, fitted scores are out of fold: each source is scored by a fit that did not see it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from fedsrc.common.canonical import digest_bytes
from fedsrc.data.answers import Answer
from fedsrc.data.embedded import TASKS, Task
from fedsrc.data.halueval import read_halueval
from fedsrc.data.ragtruth import read_noted
from fedsrc.maths.arrays import Floats
from fedsrc.scores.catalogue import BASIC, JUDGED, SAMPLED, SCORES, Settings
from fedsrc.scores.fitted.development import folds_of, labels_of
from fedsrc.scores.fitted.fit import Fitted, fitted_franq, fitted_mechanistic
from fedsrc.scores.fitted.frozen import load
from fedsrc.scores.fitted.supervised import Model, columns_with
from fedsrc.scores.methods.judge import GREEDY
from fedsrc.scores.models.embedding import Embeds, load_embedder
from fedsrc.scores.models.torch_tools import device_of
from fedsrc.scores.recordings.replay import Recording
from fedsrc.scores.recordings.samples import SampleRecording
from fedsrc.scores.recordings.signal_recording import SignalRecording
from fedsrc.scores.scoring import Means, score_answers
from research.tables.embedded import PAIRS, PLACES

UNSEEN = ("calibration", "evaluation")
DEVELOPMENT_PAIRS, ALL_PAIRS = 200, 600
ABOUT = ("id", "source", "generator", "loss")
LEFT_OUT = "selfcheck-nli"  # needs an entailment model
COUNTS = {  # (by words, by embedding): the authors' count, as far as responses were drawn and could be embedded
    "ragtruth": (20, 20),
    "halueval": (10, 10),
}
PART = 1000  # texts that a stop may lose


class Kept:
    """An embedding whose vectors are kept in a folder, so that each text is embedded once, over runs too."""

    def __init__(self, embeds: Embeds, folder: Path) -> None:
        self._embeds, self._folder, self.identity = embeds, folder, embeds.identity
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, Floats] = {}
        for names in sorted(folder.glob("*.json")):
            vectors = np.load(names.with_suffix(".npy"))
            self._known.update(zip(json.loads(names.read_bytes()), vectors, strict=True))

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row of length 1 a text."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        for start in range(0, len(new), PART):
            part = new[start : start + PART]
            vectors = self._embeds.embed(part).astype(np.float32)
            place = self._folder / f"{len(list(self._folder.glob('*.json'))):05d}"
            np.save(place.with_suffix(".npy"), vectors)
            place.with_suffix(".json").write_text(json.dumps(part))
            self._known.update(zip(part, vectors, strict=True))
        return np.stack([self._known[text] for text in texts]).astype(np.float64)


@dataclass(frozen=True)
class Recorded:
    """What one model gave for a set of answers."""

    tokens: Recording
    replies: SampleRecording
    signals: SignalRecording
    samples: SampleRecording


def recorded(folder: Path, name: str) -> Recorded:
    kinds = (folder / f"{name}.{kind}.jsonl" for kind in ("replies", "signals", "samples"))
    replies, signals, samples = kinds
    return Recorded(
        Recording(folder / f"{name}.jsonl"), SampleRecording(replies, None, GREEDY),
        SignalRecording(signals), SampleRecording(samples),
    )  # fmt: skip


def counts(most: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """How many responses each score takes: the authors' count as far as there are so many, and the fewest."""
    words, embedded = most
    found = {}
    for name, score in SAMPLED.items():
        if name != LEFT_OUT:
            found[name] = min(score.recommended, words if score.needs == {"samples"} else embedded), score.matched
    return found


def plain_columns(answers: Sequence[Answer], kept: Recorded) -> dict[str, list[float]]:
    """The scores that draw nothing."""
    means = Means(replies=kept.replies, tokens=kept.tokens)
    return score_answers(answers, [*BASIC, *JUDGED], Settings(), means)


def drawn_columns(
    answers: Sequence[Answer], kept: Recorded, embeds: Embeds, most: tuple[int, int]
) -> dict[str, list[float]]:
    """The scores of drawn responses, as NAME-COUNT."""
    by_count: dict[int, list[str]] = defaultdict(list)
    for name, both in counts(most).items():
        for count in both:
            by_count[count].append(name)
    found: dict[str, list[float]] = {}
    for count, names in by_count.items():
        means = Means(samples=kept.samples, count=count, embeds=embeds)
        scored = score_answers(answers, names, Settings(), means)
        found |= {f"{name}-{count}": column for name, column in scored.items()}
    order = [f"{name}-{count}" for name, both in counts(most).items() for count in both]
    return {name: found[name] for name in order}


def fits(kept: Recorded) -> dict[str, tuple[Callable[[Sequence[Answer]], Fitted], Model]]:
    """How each fitted score is fitted, and what it reads."""
    return {
        "mechanistic": (lambda answers: fitted_mechanistic(answers, kept.signals), kept.signals),
        "franq": (lambda answers: fitted_franq(answers, kept.tokens), kept.tokens),
    }


def named(name: str, columns: dict[str, list[float]]) -> dict[str, list[float]]:
    """A fitted score's column, and FRANQ's faithfulness beside it."""
    return {f"{name}-{more}" if more else name: columns[more] for more in ("", "faithfulness") if more in columns}


def out_of_fold(answers: Sequence[Answer], kept: Recorded) -> dict[str, list[float]]:
    """Fitted scores of development answers, each source scored by a fit on four fifths that do not hold it."""
    folds, found = folds_of(answers, labels_of(answers)), dict[str, list[float]]()
    for name, (fit, model) in fits(kept).items():
        for fold in np.unique(folds):
            own = np.flatnonzero(folds == fold).tolist()
            fitted = fit([answers[i] for i in np.flatnonzero(folds != fold).tolist()])
            scored = named(name, columns_with(fitted.parameters, [answers[i] for i in own], model))
            for column, values in scored.items():
                into = found.setdefault(column, [0.0] * len(answers))
                for place, value in zip(own, values, strict=True):
                    into[place] = value
    return found


def fitted_columns(
    name: str, development: Sequence[Answer], answers: Sequence[Answer], kept: Recorded, target: Path
) -> dict[str, list[float]]:
    """Fitted scores of unseen answers, frozen in folders that refuse development answers."""
    found: dict[str, list[float]] = {}
    digest = digest_bytes(json.dumps([asdict(answer) for answer in development]).encode())
    for kind, (fit, model) in fits(kept).items():
        folder = target / f"{name}-{kind}"
        frozen = load(folder) if folder.is_dir() else fit(development).freeze(folder, development, digest)
        print(f"{folder.name}: nested AUC {frozen.document.training.auc:.3f}, {frozen.document.training.settings}")
        found |= named(kind, frozen.columns(answers, model))
    return found


def table(answers: Sequence[Answer], columns: dict[str, list[float]]) -> pl.DataFrame:
    """Ids, sources, generators, losses and scores; no text."""
    about = {name: [getattr(answer, name) for answer in answers] for name in ABOUT}
    return pl.DataFrame({**about, **columns})


def scores_of(frame: pl.DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in ABOUT]


def passes(columns: Sequence[str], most: tuple[int, int]) -> dict[str, int]:
    """Extra passes of the model for each column."""
    drawn = {f"{name}-{count}": count for name, both in counts(most).items() for count in both}
    fitted = {"franq": 1, "franq-faithfulness": 1, "detector": 1}  # a detector's weights are its own, so is its pass
    known = {name: SCORES[name].extra_passes(1) for name in columns if name in SCORES}
    return {name: known.get(name, drawn.get(name, fitted.get(name, 0))) for name in columns}


def make(
    name: str, parts: dict[str, list[Answer]], folder: Path, embeds: Embeds, most: tuple[int, int], target: Path
) -> dict[str, pl.DataFrame]:
    """The two tables of a set of answers, by the part."""
    kept, found = recorded(folder, name), {}
    for part, answers in parts.items():
        columns = plain_columns(answers, kept) | drawn_columns(answers, kept, embeds, most)
        if part == "unseen":
            columns |= fitted_columns(name, parts["development"], answers, kept, target)
        else:
            columns |= out_of_fold(answers, kept)
        found[part] = table(answers, columns)
    return found


def ragtruth_parts(data: Path, fitted: pl.DataFrame) -> dict[str, list[Answer]]:
    part = dict(fitted.select("id", "part").iter_rows())
    asked = [answer for answer, _ in read_noted(data / "ragtruth") if answer.group == "QA"]
    answers = [answer for answer in asked if part.get(answer.id, "test") != "test"]
    return {
        "development": [answer for answer in answers if part[answer.id] == "development"],
        "unseen": [answer for answer in answers if part[answer.id] in UNSEEN],
    }


def halueval_parts(data: Path, task: Task) -> dict[str, list[Answer]]:
    """600 pairs by a hash of their names; 200 of them for development, whose evidence leaves the others."""
    answers = read_halueval(data / "halueval", task, pairs=PAIRS[task])
    order = sorted({each.source for each in answers}, key=lambda s: hashlib.sha256(f"scores {s}".encode()).hexdigest())
    first, last = set(order[:DEVELOPMENT_PAIRS]), set(order[DEVELOPMENT_PAIRS:ALL_PAIRS])
    development = [answer for answer in answers if answer.source in first]
    seen = {answer.evidence for answer in development}
    unseen = [answer for answer in answers if answer.source in last and answer.evidence not in seen]
    return {"development": development, "unseen": unseen}


def write(frames: dict[str, pl.DataFrame], name: str, most: tuple[int, int], target: Path) -> None:
    """Both tables of a set, and the manifest that `fedsrc choose` reads passes from."""
    for part, frame in frames.items():
        path = target / f"{name}-scores{'' if part == 'unseen' else '-development'}.parquet"
        frame.write_parquet(path, compression="zstd", compression_level=22)
        manifest = {"passes": passes(scores_of(frame), most)}
        path.with_name(f"{path.name}.manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
        print(f"{path.name}: {frame.height:,} rows, {len(scores_of(frame))} scores, {path.stat().st_size:,} bytes")


def main() -> None:
    if len(sys.argv) < 6:
        sys.exit("usage: python -m research.tables.scores DATA RECORDINGS FITTED EMBEDDING TABLES [NAME ...]")
    data, folder, fitted_file, _, target = map(Path, sys.argv[1:6])
    embeds = Kept(load_embedder(sys.argv[4], device=device_of("auto")), target / "vectors")
    names = sys.argv[6:] or ("ragtruth", *TASKS)
    if "ragtruth" in names:
        ragtruth(data, folder, pl.read_parquet(fitted_file), embeds, target)
    for task in TASKS:
        if task in names:
            halueval(data, folder, task, embeds, target)


def ragtruth(data: Path, folder: Path, fitted: pl.DataFrame, embeds: Embeds, target: Path) -> None:
    """Make the tables of RAGTruth, with the fitted scores that are given."""
    frames = make("ragtruth", ragtruth_parts(data, fitted), folder, embeds, COUNTS["ragtruth"], target)
    beside = fitted.select("id", "probe", "detector")
    joined = {part: frame.join(beside, on="id", how="left", validate="1:1") for part, frame in frames.items()}
    joined["development"] = joined["development"].drop("detector")  # in sample there
    write(joined, "ragtruth", COUNTS["ragtruth"], target)


def halueval(data: Path, folder: Path, task: Task, embeds: Embeds, target: Path) -> None:
    """Make the tables of one task of HaluEval, rounded as they come with the package."""
    frames = make(task, halueval_parts(data, task), folder, embeds, COUNTS["halueval"], target)
    numbers = pl.col("loss", *scores_of(frames["unseen"]))
    rounded = {
        part: frame.drop("generator").with_columns(numbers.round(PLACES).cast(pl.Float32))
        for part, frame in frames.items()
    }
    write(rounded, f"halueval-{task}", COUNTS["halueval"], target)


if __name__ == "__main__":
    main()
