"""The audit counts what is there and says what is wrong; damaged originals are named, whatever is in them.

Mutants killed: labels or lengths swapped, ties counted whole, a span's end taken as inside, an artefact or a torn
source not told, sources joined by half, a choice that depends on the label, a traceback for a wrong type in any field.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import os
import random
from collections import Counter
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsrc.data.answer_audit import audit
from fedsrc.data.answers import Answer, Notes, Span, read_answers
from fedsrc.data.collection import Collection, open_collection, source_file
from fedsrc.data.halueval import read_halueval
from fedsrc.data.manifest import Duplicates, Manifest
from fedsrc.data.provenance import provenance
from fedsrc.data.ragtruth import read_noted
from fedsrc.data.selection import Selection, keep, select_answers
from fedsrc.data.split import PARTS, assign, join_sources, one_per_source, torn
from fedsrc.errors import FedsrcError
from fedsrc.maths.rank import chance_above
from tests.support.answers import write_answers

BASE = Answer(id="1", source="s", evidence="evidence", response="0123456789", loss=0.0, generator="m", group="QA")
SPAN = {"start": 2, "end": 5, "text": "234", "label_type": "x", "implicit_true": True, "due_to_null": False}
RESPONSE = {
    "id": "1", "source_id": "7", "model": "m", "temperature": 0.7, "labels": [SPAN], "split": "train",
    "quality": "good", "response": "0123456789",
}  # fmt: skip
SOURCE = {
    "source_id": "7", "task_type": "QA", "source": "MARCO", "prompt": "p",
    "source_info": {"question": "why?", "passages": "because"},
}  # fmt: skip
PAIR = {"knowledge": "k", "question": "q", "right_answer": "r", "hallucinated_answer": "h"}
OWN = {"id": "1", "source": "s", "question": "q?", "evidence": "some text", "response": "an answer", "loss": 1}
ODD: list[Any] = [
    None, True, -1, 10**30, 10**400, 1.5, float("nan"), float("inf"), "", " ", "\ud800", "x" * 300, [], {}, [[]],
    {"a": 1}, [None], [{}], [{"start": "0", "end": 1}], [{"start": 0, "end": True}], [{"start": 0.0, "end": 1}],
    [{**SPAN, "text": 3}], [{**SPAN, "implicit_true": "no"}], {"passages": 3}, {"passages": "x"},
]  # fmt: skip


def sentences(manifest: Manifest, severity: str) -> str:
    return "\n".join(each.text for each in manifest.findings if each.severity == severity)


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def real(name: str) -> Path:
    folder = os.environ.get("FEDSRC_DATA")
    if not folder or not (Path(folder) / name).is_dir():
        pytest.skip(f"set FEDSRC_DATA to a folder with {name} to audit the real collection")
    return Path(folder) / name


def audited(collection: Collection, choice: Selection | None = None) -> Manifest:
    chosen = select_answers(collection.answers, choice or Selection())
    return audit(chosen.answers, name=collection.name, files=collection.files, notes=collection.notes)


def test_counts_by_hand() -> None:
    answers = [
        BASE,
        replace(BASE, id="2", loss=1.0, response="01234567890123456789", generator="n"),
        replace(BASE, id="3", source="t", evidence="other", loss=0.25, split="test"),
        replace(BASE, id="4", source="u", evidence="third", loss=None, group=""),
    ]
    found = audit(answers, name="mine")
    assert (found.answers, found.labelled, found.unlabelled, found.unsupported, found.graded) == (4, 3, 1, 2, 1)
    assert (found.sources, found.answers_per_source) == (3, {"1": 2, "2": 1})
    assert [(c.group, c.generator, c.split, c.label, c.answers) for c in found.counts] == [
        ("", "m", "", "unlabelled", 1),
        ("QA", "m", "", "supported", 1),
        ("QA", "m", "test", "unsupported", 1),
        ("QA", "n", "", "unsupported", 1),
    ]
    assert [(r.generator, r.labelled, r.unsupported) for r in found.rates] == [("m", 2, 1), ("n", 1, 1)]
    sizes = {(each.text, each.label): each.quantiles for each in found.lengths}
    assert sizes["response", "unsupported"] == {
        "0": 10, "0.05": 10, "0.25": 10, "0.5": 10, "0.75": 20, "0.95": 20, "1": 20,
    }  # fmt: skip
    assert sizes["evidence", "unlabelled"]["1"] == 5
    assert [(each.group, each.auc) for each in found.length_auc] == [("", 0.75), ("QA", 0.75)]
    assert sentences(found, "note") == "1 answer has no label."
    assert not found.errors
    assert json.loads(json.dumps(asdict(found)))["format"] == 1
    assert found.lines()[0] == "mine: 4 answers of 3 sources; 3 labelled, 2 of them unsupported (66.7%)."


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_length_auc_is_the_share_of_pairs_won(right: list[int], wrong: list[int]) -> None:
    won = sum((w > r) + (w == r) / 2 for r, w in product(right, wrong))
    assert chance_above(np.array(wrong), np.array(right)) == pytest.approx(won / (len(right) * len(wrong)))


def test_spans_that_do_not_fit_are_counted() -> None:
    spans = {
        "good": Span(0, 10, "0123456789"),
        "past the end": Span(5, 11, "56789"),
        "before the start": Span(-1, 3),
        "backwards": Span(5, 2, "234"),
        "empty": Span(3, 3, ""),
        "other text": Span(0, 3, "abc"),
        "no text": Span(0, 3, implicit_true=True),
    }
    answers = [replace(BASE, id=name, source=name, evidence=name, loss=1.0) for name in spans]
    found = audit(answers, name="x", notes={name: Notes((span,)) for name, span in spans.items()}).marks
    assert (found.spans, found.outside, found.reversed, found.other_text) == (7, 2, 2, 1)
    assert (found.implicit_true, found.implicit_only_answers, found.due_to_null) == (1, 1, 0)
    mixed = Notes((Span(0, 1, implicit_true=True, due_to_null=True), Span(1, 2)), "truncated")
    both = audit([BASE], name="x", notes={"1": mixed})
    assert (both.marks.implicit_true, both.marks.implicit_only_answers, both.marks.due_to_null) == (1, 0, 1)
    assert both.quality == {"truncated": 1}
    assert "1 answer marked truncated" in sentences(both, "note")
    assert sentences(both, "warning") == ""


def test_duplicates_and_torn_sources_are_told() -> None:
    other = replace(BASE, id="2", source="t", response="x")
    assert "1 text of evidence under several source names (2 sources)" in sentences(
        audit([BASE, other], name="x"), "warning"
    )
    assert "1 source has answers in several original splits: s" in sentences(
        audit([BASE, replace(BASE, id="2", split="test", response="x")], name="x"), "warning"
    )
    doubled = audit([BASE, replace(BASE, id="2", response=" 0123456789\n", loss=1.0)], name="x")
    assert "1 response of one generator more than once for the same source: 1." in sentences(doubled, "warning")
    assert "1 response both supported and unsupported" in sentences(doubled, "warning")
    shared = audit([BASE, replace(BASE, id="2", generator="n")], name="x")
    assert sentences(shared, "warning") == ""
    assert "word for word from several generators" in sentences(shared, "note")
    assert (doubled.duplicates, shared.duplicates) == (Duplicates(1, 0, 0), Duplicates(1, 0, 0))
    assert audit([BASE, other, replace(other, id="3", split="test")], name="x").duplicates == Duplicates(1, 1, 1)
    several = audit([BASE, replace(BASE, id="2", response="x", evidence="more")], name="x")
    assert several.duplicates == Duplicates(0, 0, 0)
    assert "1 source has more than one text of evidence: s." in sentences(several, "note")


def test_empty_texts_are_errors() -> None:
    found = audit([BASE, *(replace(BASE, id=f"e{i}", evidence=" \n", response=f"{i}") for i in range(5))], name="x")
    assert sentences(found, "error") == "5 answers have no evidence: e0, e1, e2 and 2 more."
    assert found.findings[0].severity == "error"
    assert "1 answer has no response: 1." in sentences(audit([replace(BASE, response="")], name="x"), "error")


def test_artefacts_are_told() -> None:
    """Length, a generator that gives the label away, splits that differ: each told at its limit and not below."""

    def made(wrong_length: int, n: int = 20) -> Manifest:
        pairs = [(f"{i}-{loss}", f"{i}", loss) for i in range(n) for loss in (0, 1)]
        return audit(
            [
                replace(
                    BASE, id=name, source=source, evidence=source, loss=float(loss), generator="mn"[loss],
                    response="x" * (wrong_length if loss else 10),
                )
                for name, source, loss in pairs
            ],
            name="x",
        )  # fmt: skip

    assert "Unsupported responses are longer: length alone has AUC 1.000" in sentences(made(11), "warning")
    assert "Unsupported responses are shorter: length alone has AUC 0.000" in sentences(made(9), "warning")
    assert "Unsupported" not in sentences(made(10), "warning")
    assert "All answers of m, n have the same label" in sentences(made(10), "warning")
    assert sentences(made(11, n=19), "warning") == ""

    def two_splits(second: int) -> Manifest:
        rows = [("train", i, 50) for i in range(100)] + [("test", i, second) for i in range(100)]
        return audit(
            [
                replace(BASE, id=f"{s}{i}", source=f"{s}{i}", evidence=f"{s}{i}", split=s, loss=float(i < k))
                for s, i, k in rows
            ],
            name="x",
        )

    assert "QA, m: 20.0% unsupported in split test, 50.0% in train" in sentences(two_splits(20), "warning")
    assert sentences(two_splits(30), "warning") == ""
    assert "No answer is labelled" in sentences(audit([replace(BASE, loss=None)], name="x"), "warning")


def test_files_are_told_by_their_content(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(b"text\n")
    packed.write_bytes(gzip.compress(b"text\n"))
    one, other = source_file(plain), source_file(packed)
    assert (one.bytes, one.sha256, one.known, one.address) == (5, one.content_sha256, "unknown", None)
    assert other.content_sha256 == one.sha256 != other.sha256
    with pytest.raises(FedsrcError, match="cannot be read"):
        source_file(tmp_path / "none")
    lines(tmp_path / "qa_data.json", [PAIR])
    found = audited(open_collection(str(tmp_path)))
    assert found.files[0].known == "other"
    assert "qa_data.json is not the public original https://" in sentences(found, "note")


def test_collections_are_known_by_what_lies_there(tmp_path: Path) -> None:
    truth, halu, own = tmp_path / "truth", tmp_path / "halu", tmp_path / "own"
    for folder in (truth, halu, own):
        folder.mkdir()
    lines(truth / "source_info.jsonl", [SOURCE])
    lines(truth / "response.jsonl", [RESPONSE])
    lines(halu / "qa_data.json", [PAIR])
    lines(own / "response.jsonl", [OWN])
    found = open_collection(str(truth))
    assert (found.name, len(found.files), found.notes["1"].spans[0].implicit_true) == ("ragtruth", 2, True)
    assert open_collection(str(truth / "response.jsonl")).name == "ragtruth"
    assert open_collection(str(halu / "qa_data.json")).name == "halueval/qa"
    assert open_collection(str(halu), task="QA", pairs=1).name == "halueval/qa"
    assert open_collection(str(own / "response.jsonl")).name == "response.jsonl"
    for what, how, message in (
        (own, {}, "no known collection in this folder"),
        (halu, {"task": "dialogue"}, "which of HaluEval's tasks"),
        (halu / "qa_data.json", {"task": "dialogue"}, "this is HaluEval's qa file"),
        (truth, {"pairs": 3}, "belongs to HaluEval"),
        (tmp_path / "none.jsonl", {}, "no such file, and no collection"),
        (Path("halueval"), {}, "no such file, and no collection of that name\nhint: which task"),
        (Path("x" * 5000), {}, "no such file"),
    ):
        with pytest.raises(FedsrcError, match=message):
            open_collection(str(what), **how)
    with pytest.raises(FedsrcError, match="unknown kind of file"):
        open_collection(str(lines(tmp_path / "a.csv", [])))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every field of a nested value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at for key, item in inner for at in ((*path, key), *places(item, (*path, key)))]


def damaged(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The row with every field in turn left out, and replaced by every odd value."""
    found = []
    for *outer, last in places(row):
        for odd in (..., *ODD):
            copied = copy.deepcopy(row)
            holder = copied
            for key in outer:
                holder = holder[key]
            if odd is ...:
                del holder[last]
            else:
                holder[last] = odd
            found.append(copied)
    return found


def refuses_or_writes(read: Any, row: dict[str, Any], path: Path) -> bool:
    """Whether the damaged row was refused, with its file named; what is accepted can be written and audited."""
    answers, refusal = [], ""
    try:
        answers = read()
    except FedsrcError as error:
        refusal = str(error)
    if refusal:
        assert str(path.parent) in refusal, row
        return True
    audit(answers, name="x")
    write_answers(path.with_name("out.jsonl"), answers)
    return False


def test_any_damage_to_ragtruth_is_named(tmp_path: Path) -> None:
    responses, sources = lines(tmp_path / "response.jsonl", [RESPONSE]), lines(tmp_path / "source_info.jsonl", [SOURCE])
    assert not refuses_or_writes(lambda: [answer for answer, _ in read_noted(tmp_path)], RESPONSE, responses)
    refused: Counter[bool] = Counter()
    for row in damaged(RESPONSE):
        lines(responses, [row])
        refused[refuses_or_writes(lambda: [answer for answer, _ in read_noted(tmp_path)], row, responses)] += 1
    lines(responses, [RESPONSE])
    for row in damaged(SOURCE):
        lines(sources, [row])
        refused[refuses_or_writes(lambda: [answer for answer, _ in read_noted(tmp_path)], row, sources)] += 1
    assert min(refused.values()) > 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"response": None}, r"response\.jsonl line 1: response is not text"),
        ({"labels": "none"}, "line 1: labels is not a list of marked spans"),
        ({"labels": [{"end": 3}]}, "line 1, span 1: start is missing"),
        ({"labels": [SPAN, {**SPAN, "end": "5"}]}, "line 1, span 2: end is not a whole number"),
        ({"source_id": "8"}, "line 1: source '8' is not in source_info"),
        ({"model": 3}, "line 1: model is not text"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    lines(tmp_path / "source_info.jsonl", [SOURCE])
    lines(tmp_path / "response.jsonl", [{**RESPONSE, **changes}])
    with pytest.raises(FedsrcError, match=message):
        read_noted(tmp_path)


def test_repeated_ids_and_spans_out_of_place(tmp_path: Path) -> None:
    lines(tmp_path / "source_info.jsonl", [SOURCE])
    lines(tmp_path / "response.jsonl", [{**RESPONSE, "labels": [{**SPAN, "start": 8, "end": 99}], "quality": None}])
    [(answer, notes)] = read_noted(tmp_path)
    assert (answer.loss, answer.span_fraction, notes.quality) == (1.0, 0.2, "")
    lines(tmp_path / "response.jsonl", [RESPONSE, RESPONSE])
    with pytest.raises(FedsrcError, match="id '1' occurs twice"):
        read_noted(tmp_path)
    lines(tmp_path / "source_info.jsonl", [SOURCE, SOURCE])
    with pytest.raises(FedsrcError, match="line 2: source '7' occurs twice"):
        read_noted(tmp_path)


def test_any_damage_to_halueval_and_own_answers_is_named(tmp_path: Path) -> None:
    pairs, own = tmp_path / "qa_data.json", tmp_path / "own.jsonl"
    refused: Counter[bool] = Counter()
    for row in damaged(PAIR):
        lines(pairs, [row])
        refused[refuses_or_writes(lambda: read_halueval(pairs, "qa"), row, pairs)] += 1
    for row in damaged(OWN):
        lines(own, [row])
        refused[refuses_or_writes(lambda: read_answers(own), row, own)] += 1
    assert min(refused.values()) > 30
    with pytest.raises(FedsrcError, match="there are no pairs"):
        read_halueval(lines(pairs, []), "qa")


def test_damaged_bytes_are_refused(tmp_path: Path) -> None:
    rng, path = random.Random(0), tmp_path / "own.jsonl.gz"
    packed = gzip.compress("".join(json.dumps({**OWN, "id": i}) + "\n" for i in range(50)).encode(), mtime=0)
    refused = 0
    for _ in range(300):
        wounded = bytearray(packed)
        wounded[rng.randrange(len(wounded))] ^= 1 << rng.randrange(8)
        path.write_bytes(wounded[: rng.choice([len(wounded), rng.randrange(len(wounded))])])
        try:
            read_answers(path)
        except FedsrcError:
            refused += 1
    assert refused > 200


def test_rows_without_an_id_are_called_by_file_and_place(tmp_path: Path) -> None:
    row = {"evidence": "e", "response": "r", "id": None}
    [answer] = read_answers(lines(tmp_path / "own.jsonl", [row]))
    assert (answer.id, answer.source) == ("own.jsonl line 1", "own.jsonl line 1")


def test_joined_sources_are_one_through_any_chain() -> None:
    evidence = {"a": "1", "b": "2", "c": "2", "d": "3", "e": "4"}
    answers = [replace(BASE, id=name, source=name, evidence=text) for name, text in evidence.items()]
    chain = replace(BASE, id="f", source="d", evidence=" 2 ")
    assert [answer.source for answer in join_sources([*answers, chain])] == ["a", "b", "b", "b", "e", "b"]
    assert [answer.source for answer in join_sources(answers)] == ["a", "b", "b", "d", "e"]
    late = [("z", "1"), ("y", "2"), ("x", "2"), ("x", "1")]  # the last row joins y, through x, to z
    assert {a.source for a in join_sources([replace(BASE, source=s, evidence=e) for s, e in late])} == {"z"}
    many = [replace(BASE, id=f"{i}", source=f"{i}", evidence=f"{i % 50}") for i in range(200)]
    assert torn(many, assign(many, 0)) > 0
    joined = join_sources(many)
    assert torn(joined, assign(joined, 0)) == 0


def test_one_answer_of_each_source_whatever_its_label() -> None:
    """Of 2,000 pairs the share of second answers is within 6 standard deviations of a half."""
    answers = [replace(BASE, id=f"{i}-{j}", source=f"{i}", loss=float(j)) for i in range(2000) for j in (0, 1)]
    one = one_per_source(answers, 0)
    assert [answer.source for answer in one] == [f"{i}" for i in range(2000)]
    assert abs(sum(answer.loss or 0 for answer in one) - 1000) < 6 * (2000 / 4) ** 0.5
    assert one_per_source(reversed(answers), 0) == one[::-1]
    assert one_per_source(answers[:1000], 0) == one[:500]
    assert one_per_source(answers, 1) != one

    def rank(answer: Answer) -> str:
        return hashlib.sha256(f'["one per source",7,"{answer.source}","{answer.id}"]'.encode()).hexdigest()

    assert one_per_source(answers[:40], 7) == [min(answers[i : i + 2], key=rank) for i in range(0, 40, 2)]


def test_choices_are_applied_and_misses_are_told() -> None:
    answers = [
        replace(BASE, id=f"{i}{g}{s}", source=f"{i}", evidence=f"{i // 2}", generator=g, split=s)
        for i in range(60)
        for g in ("m", "N")
        for s in ("train", "test")
    ]
    assert {(a.generator, a.split) for a in keep(answers, task="qa", generators=["n"], split="TRAIN")} == {
        ("N", "train")
    }
    assert len(keep(answers, generators=["m", "n"])) == 240
    assert keep(answers) == answers
    for how, message in (
        ({"task": "summary"}, "the task 'summary'\nhint: there are: QA"),
        ({"generators": ["m", "o"]}, "the generator 'o'\nhint: there are: N, m"),
        ({"split": "dev"}, "the split 'dev'"),
    ):
        with pytest.raises(FedsrcError, match=message):
            keep(answers, **how)
    chosen = [select_answers(answers, Selection(part=part, one_per_source=True)) for part in PARTS]
    assert sorted(a.source for each in chosen for a in each.answers) == sorted(f"{i}" for i in range(60))
    assert all("stand in more than one part" in each.findings[0].text for each in chosen)
    assert not select_answers(answers, Selection(part="calibration", join_sources=True)).findings
    assert select_answers(answers, Selection(seed=5)).parts == assign(answers, 5) != assign(answers, 0)
    nothing = {"development": 0.0, "calibration": 1.0, "evaluation": 0.0}
    with pytest.raises(FedsrcError, match="no answer is in the part development"):
        select_answers(answers, Selection(part="development", shares=nothing))
    for shares in ({**nothing, "calibration": float("nan")}, {**nothing, "development": -0.5, "evaluation": 0.5}):
        with pytest.raises(FedsrcError, match="sum to one"):
            select_answers(answers, Selection(shares=shares))


@pytest.mark.parametrize(
    ("generator", "model", "expected"),
    [
        ("mistral-7B-instruct", "mistralai/Mistral-7B-Instruct-v0.1", "matched"),
        ("mistral-7B-instruct", " Mistral-7b-instruct ", "matched"),
        ("mistral-7B-instruct", "mistralai/Mistral-7B-Instruct-v0.2", "cross-model"),
        ("llama-2-7b-chat", "meta-llama/Llama-2-13b-chat-hf", "cross-model"),
        ("llama-2-7b-chat", "TheBloke/Llama-2-7B-Chat-GGUF", "cross-model"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b-chat", "matched"),
        ("reference", "gpt2", "cross-model"),
        ("unknown", "gpt2", "unknown"),
        ("", "gpt2", "unknown"),
        ("unknown", "unknown", "unknown"),
        ("gpt2", "", "unknown"),
    ],
)
def test_matched_is_claimed_for_declared_names_alone(generator: str, model: str, expected: str) -> None:
    assert provenance(generator, model) == expected


def test_names_can_be_declared_the_same() -> None:
    aliases = {"our-model": ("hub/our-model-1", "mirror/our-model-1")}
    assert provenance("our-model", "mirror/our-model-1", aliases) == "matched"
    assert provenance("hub/our-model-1", "mirror/OUR-model-1", aliases) == "matched"
    assert provenance("our-model", "hub/our-model-2", aliases) == "cross-model"


def test_ragtruth_as_it_is() -> None:
    collection = open_collection(str(real("ragtruth")))
    cell = audited(collection, Selection(task="QA", generators=("mistral-7B-instruct",), split="train"))
    assert (cell.answers, cell.sources, cell.unsupported) == (839, 839, 347)
    assert (cell.marks.outside, cell.marks.reversed, cell.marks.other_text) == (0, 0, 0)
    assert audited(collection).duplicates == Duplicates(7, 0, 0)
    found = audited(collection, Selection(task="QA"))
    assert "QA, mistral-7B-instruct: 20.7% unsupported in split test, 41.4% in train" in sentences(found, "warning")
    assert "several source names" not in sentences(found, "warning")
    assert "several original splits" not in sentences(found, "warning")
    assert not found.errors


@pytest.mark.parametrize(
    ("task", "pairs", "auc", "shared", "known"),
    [("qa", 10_000, 0.971, 63, "original"), ("dialogue", 10_000, 0.722, 597, "original"),
     ("summarization", 2_000, 0.800, 1, "unknown")],
)  # fmt: skip
def test_halueval_as_it_is(task: str, pairs: int, auc: float, shared: int, known: str) -> None:
    """The summarization figure is that of the first 2,000 pairs."""
    found = audited(open_collection(str(real("halueval")), task=task, pairs=pairs))
    assert (found.answers, found.unsupported, found.answers_per_source) == (2 * pairs, pairs, {"2": pairs})
    assert found.length_auc[0].auc == pytest.approx(auc, abs=5e-4)
    text = "1 text" if shared == 1 else f"{shared} texts"
    assert f"{text} of evidence under several source names" in sentences(found, "warning")
    assert f"length alone has AUC {auc:.3f}" in sentences(found, "warning")
    assert found.files[0].known == known
    assert not found.errors
