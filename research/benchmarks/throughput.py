"""Throughput of TransformersModel.score beside a plain loop over the same answers, in the same run.

Writes docs/results/throughput.md, the section of the given device; the other device's section is kept. Run:
    python -m research.benchmarks.throughput DATA_FOLDER --model PATH.gguf
        [--device cpu|cuda] [--dtype float32 bfloat16] [--answers COUNT]
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedsrc.data.answers import Answer
from fedsrc.data.halueval import Task, read_halueval
from fedsrc.data.ragtruth import read_noted
from fedsrc.data.selection import keep
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import Prompted, TokenScores
from fedsrc.scores.models.transformers_model import TransformersModel, load
from fedsrc.scores.models.transformers_reader import BATCH_TOKENS
from fedsrc.scores.prompts import prompt
from research.pages import RESULTS, markdown

T = TypeVar("T")
PAGE = RESULTS / "throughput.md"
SECTIONS = {"cpu": "## On a CPU", "cuda": "## On a GPU"}
MATRIX = {"cpu": 2048, "cuda": 8192}
TASKS: tuple[Task, ...] = ("qa", "dialogue")
REPEATS, ANSWERS, AIM, GPU_AIM = 2, 16, 5, 20
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.1}  # mean difference of log-probabilities to the loop's


@dataclass(frozen=True)
class Work:
    """Tokens and arithmetic of one set of answers, with and without the evidence."""

    read: int  # distinct prompts, and responses after each
    padded: int  # the same with padding
    operations: float
    plain_operations: float


@dataclass(frozen=True)
class Taken:
    """Seconds of the wall clock, and of the process's own CPU time."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Row:
    """One set of answers in one precision."""

    name: str
    dtype: str
    answers: int
    work: Work
    plain: Taken
    in_float32: Taken | None  # the plain loop's
    ours: Taken
    tokenising: Taken
    ceiling: float  # operations a second of a large matrix product


@dataclass(frozen=True)
class Clock:
    """Measures work; on a GPU it waits until the device is done."""

    device: str

    def take(self, work: Callable[[], T]) -> tuple[T, Taken]:
        self.wait()
        wall, cpu = time.perf_counter(), time.process_time()
        made = work()
        self.wait()
        return made, Taken(time.perf_counter() - wall, time.process_time() - cpu)

    def wait(self) -> None:
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def seconds(self, taken: Taken) -> float:
        """The time that ratios compare: the process's on a shared CPU, the wall's on a GPU."""
        return taken.cpu if self.device == "cpu" else taken.wall

    def least(self, takes: Sequence[Taken]) -> Taken:
        return min(takes, key=self.seconds)


def plain(model: TransformersModel, pairs: Sequence[Prompted]) -> list[Floats]:
    """What one would write first: tokenise, one forward pass with all logits, log-softmax, gather; one by one."""
    import torch

    network, tokenizer, found = model.network, model.tokenizer, []
    with torch.inference_mode():
        for pair in pairs:
            before = tokenizer(pair.prompt)["input_ids"]
            after = tokenizer(pair.response, add_special_tokens=False)["input_ids"]
            logits = network(input_ids=torch.tensor([before + after], device=network.device)).logits[0]
            logprobs = torch.log_softmax(logits.float(), -1)[len(before) - 1 : -1]
            wanted = torch.tensor(after, device=network.device)[:, None]
            found.append(logprobs.gather(1, wanted)[:, 0].double().cpu().numpy())
    return found


def both_sides(answers: Sequence[Answer]) -> list[Prompted]:
    """Every answer after its prompt with and without the evidence."""
    return [Prompted(prompt(a, evidence), a.response) for a in answers for evidence in (a.evidence, "")]


def data_sets(folder: Path, count: int) -> dict[str, list[Prompted]]:
    """About `count` answers of each set, all answers of a source together."""
    found = [answer for answer, _ in read_noted(folder / "ragtruth")]
    sets = {"RAGTruth QA": keep(found, task="QA", split="train")}
    sets |= {f"HaluEval {task}": read_halueval(folder / "halueval", task) for task in TASKS}
    return {name: both_sides(spread(answers, count)) for name, answers in sets.items()}


def spread(answers: Sequence[Answer], count: int) -> list[Answer]:
    """Sources evenly over the file, about as many as hold that many answers."""
    by_source: dict[str, list[Answer]] = {}
    for answer in answers:
        by_source.setdefault(answer.source, []).append(answer)
    step = max(1, len(answers) // count)
    return [answer for source in list(by_source.values())[::step] for answer in source]


def work_of(model: TransformersModel, pairs: Sequence[Prompted], padded: int) -> Work:
    """2 x parameters x tokens, and the projection of response positions (of all positions in the plain loop)."""
    texts = model.encode(pairs)
    told = sum(len(each.ids) for each in texts.responses)
    read = told + sum(map(len, texts.prompts.values()))
    whole = told + sum(len(texts.prompts[each.prompt]) for each in texts.responses)
    body = sum(w.numel() for name, w in model.network.base_model.named_parameters() if "embed" not in name)
    head = model.network.get_output_embeddings().weight.numel()
    return Work(read, padded, 2.0 * (body * read + head * told), 2.0 * (body + head) * whole)


def padded_tokens(model: TransformersModel, pairs: Sequence[Prompted]) -> tuple[list[TokenScores], int]:
    """The scores, and how many tokens went through the network for them, padding included."""
    seen = list[int]()
    base = model.network.base_model
    hook = base.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["input_ids"].numel()), with_kwargs=True
    )
    try:
        return model.score(pairs), sum(seen)
    finally:
        hook.remove()


def ceiling(device: str, dtype: str, clock: Clock) -> float:
    """Operations a second of a square matrix product, the best of five."""
    import torch

    size = MATRIX[device]
    matrix = torch.randn(size, size, device=device, dtype=getattr(torch, dtype))
    takes = [clock.take(lambda: matrix @ matrix)[1] for _ in range(6)]
    return 2.0 * size**3 / clock.seconds(clock.least(takes[1:]))


def check(name: str, ours: Sequence[TokenScores], loop: Sequence[Floats], dtype: str) -> None:
    """Both ways must give the same log-probabilities, up to the precision."""
    apart = np.abs(np.concatenate([each.logprobs for each in ours]) - np.concatenate(list(loop))).mean()
    if not apart <= TOLERANCE[dtype]:
        sys.exit(f"error: {name}: log-probabilities are {apart:.3g} from the plain loop's on average")


def measure(args: argparse.Namespace) -> list[Row]:
    """Every set in every precision, in turns with the plain loop; of several turns the fastest counts."""
    clock, rows, slow = Clock(args.device), list[Row](), dict[str, Taken]()
    sets = data_sets(args.data, args.answers)
    for dtype in args.dtype:
        model = load(str(args.model), device=args.device, dtype=dtype)
        top = ceiling(args.device, dtype, clock)
        for name, pairs in sets.items():
            plain(model, pairs[:2])
            model.score(pairs[:2])
            turns = [
                (clock.take(partial(plain, model, pairs)), clock.take(partial(padded_tokens, model, pairs)))
                for _ in range(REPEATS)
            ]
            loop, ours = (clock.least([turn[side][1] for turn in turns]) for side in (0, 1))
            (logprobs, _), ((scores, padded), _) = turns[0]
            check(name, scores, logprobs, dtype)
            words = clock.take(partial(model.encode, pairs))[1]
            slow |= {name: loop} if dtype == "float32" else {}
            work = work_of(model, pairs, padded)
            rows.append(Row(name, dtype, len(pairs) // 2, work, loop, slow.get(name), ours, words, top))
            print(rows[-1], file=sys.stderr)
    return rows


def cells(row: Row, clock: Clock) -> list[str]:
    ours, loop = clock.seconds(row.ours), clock.seconds(row.plain)
    beside = f"{clock.seconds(row.in_float32) / ours:.1f}" if row.in_float32 else "–"
    return [
        row.name, row.dtype, f"{row.answers:,}", f"{row.answers / row.ours.wall:.2f}", f"{loop / ours:.1f}",
        f"{row.plain.wall / row.ours.wall:.1f}", beside, f"{row.work.plain_operations / row.work.operations:.1f}",
        f"{row.work.read:,}", f"{row.work.operations / 1e12:,.2f}",
        share(row.work.operations / ours / row.ceiling), share(row.work.plain_operations / loop / row.ceiling),
        share(1 - row.work.read / row.work.padded), share(clock.seconds(row.tokenising) / ours),
    ]  # fmt: skip


def share(value: float) -> str:
    return f"{100 * value:.1f}%" if value < 0.1 else f"{100 * value:.0f}%"


def measured_section(rows: Sequence[Row], args: argparse.Namespace) -> str:
    import torch
    import transformers

    clock = Clock(args.device)
    tops = {row.dtype: row.ceiling for row in rows}
    about = CPU_ABOUT if args.device == "cpu" else GPU_ABOUT
    place = torch.cuda.get_device_name() if args.device == "cuda" else platform.machine()
    machine = f"""\
This run: {place}, torch {torch.__version__}, transformers {transformers.__version__}, batches of
{BATCH_TOKENS[args.device]:,} tokens, {REPEATS} turns of each side, the faster counts. A product of two matrices of
{MATRIX[args.device]:,} x {MATRIX[args.device]:,} ran at {speeds(tops)} operations a second."""
    reading = cpu_reading if args.device == "cpu" else gpu_reading
    table = markdown(HEADER, (cells(row, clock) for row in rows))
    return "\n\n".join(["Made by", command(args), about, machine, table, reading(rows, clock)])


def command(args: argparse.Namespace) -> str:
    device = "" if args.device == "cpu" else f" --device {args.device}"
    answers = "" if args.answers == ANSWERS else f" --answers {args.answers}"
    return f"    python -m research.benchmarks.throughput DATA_FOLDER --model PATH.gguf{device}{answers}"


def cpu_reading(rows: Sequence[Row], clock: Clock) -> str:
    """Why the aim is not reached, in the run's own figures."""
    by_dtype = {dtype: [row for row in rows if row.dtype == dtype] for dtype in {row.dtype for row in rows}}
    full, half = by_dtype.get("float32", []), by_dtype.get("bfloat16", [])
    if not full or not half:
        return ""
    same = [clock.seconds(row.plain) / clock.seconds(row.ours) for row in rows]
    across = [clock.seconds(row.in_float32) / clock.seconds(row.ours) for row in half if row.in_float32]
    fewer = [row.work.plain_operations / row.work.operations for row in rows]
    busy = [row.work.plain_operations / clock.seconds(row.plain) / row.ceiling for row in full]
    return f"""\
**The aim of {AIM} times is not reached on a CPU.** In the same precision ours is {span(same)} times as fast, in
bfloat16 {span(across)} times as fast as the loop in float32. The loop wastes little that batching could win back: one
answer alone already keeps the CPU at {span([100 * x for x in busy], 0)}% of what a large matrix product reaches. What
is left is fewer operations, {span(fewer)} times fewer by reading prompts once and projecting response positions only
(of which shorter passes and padding take some back), and cheaper ones. To be {AIM} times as fast as the float32 loop,
the operations that remain would have to run at {span(needed(full, clock), 0)}% of the ceiling in float32, which cannot
be, and at {span(needed(half, clock), 0)}% in bfloat16, with attention and softmax, which are not counted, for free.
bfloat16 changes scores a little: use one precision throughout a run. Tokenisation does not matter."""


def gpu_reading(rows: Sequence[Row], clock: Clock) -> str:
    """Where the aim is reached, and how far from the ceiling both ways stay."""
    ratios = {f"{row.name} in {row.dtype}": clock.seconds(row.plain) / clock.seconds(row.ours) for row in rows}
    missed = [name for name, ratio in ratios.items() if ratio < GPU_AIM]
    across = [clock.seconds(row.in_float32) / clock.seconds(row.ours) for row in rows if row.in_float32]
    loop = [row.answers / clock.seconds(row.plain) for row in rows]
    busy = [100 * row.work.plain_operations / clock.seconds(row.plain) / row.ceiling for row in rows]
    own = {
        dtype: [100 * row.work.operations / clock.seconds(row.ours) / row.ceiling for row in rows if row.dtype == dtype]
        for dtype in dict.fromkeys(row.dtype for row in rows)
    }
    aim = f"**The aim of {GPU_AIM} times is missed** for {', '.join(missed)}." if missed else "That is the aim."
    at = ", ".join(f"{span(shares, 0)}% in {dtype}" for dtype, shares in own.items())
    return f"""\
Ours is {span(list(ratios.values()), 0)} times as fast as the loop in the same precision, {span(across, 0)} times as
fast as the loop in float32. {aim}
Read the ratios by their size alone. One answer at a time leaves a GPU idle: the loop read {span(loop, 0)} answers a
second however long they were, at {span(busy)}% of the ceiling. It is the host that binds it, and another host gives
other ratios. Of the ceiling ours reaches {at}: a model of 135M parameters is
small for this device, and so few answers fill a batch or two and leave much padding."""


def needed(rows: Sequence[Row], clock: Clock) -> list[float]:
    """Per cent of the ceiling at which our operations would be AIM times as fast as the float32 loop."""
    loops = ((row, clock.seconds(row.in_float32)) for row in rows if row.in_float32)
    return [100 * AIM * row.work.operations / loop / row.ceiling for row, loop in loops]


def span(values: Sequence[float], digits: int = 1) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def speeds(tops: Mapping[str, float]) -> str:
    return ", ".join(f"{top / 1e12:,.3g} x 10^12 ({dtype})" for dtype, top in tops.items())


def write(device: str, body: str) -> None:
    """Replace one device's section and keep the other's."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    kept = {key: section for key, title in SECTIONS.items() for section in sections(text) if section.startswith(title)}
    kept[device] = f"{SECTIONS[device]}\n\n{body}"
    whole = "\n\n".join([HEAD, *(kept[key].strip() for key in SECTIONS if key in kept)]) + "\n"
    PAGE.write_text(whole, encoding="utf-8")
    print(whole)


def sections(text: str) -> list[str]:
    return [f"## {part}" for part in text.split("\n## ")[1:]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Throughput of model-based scoring beside a plain loop.")
    parser.add_argument("data", type=Path, help="folder with ragtruth/ and halueval/")
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--device", choices=tuple(SECTIONS), default="cpu")
    parser.add_argument("--dtype", nargs="+", choices=tuple(TOLERANCE), default=["float32", "bfloat16"])
    parser.add_argument("--answers", type=int, default=ANSWERS, help="about how many answers of each set")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.device == "cpu":
        import torch

        torch.set_num_threads(1)
    write(args.device, measured_section(measure(args), args))


HEADER = (
    "answers", "precision", "count", "answers a second", "ratio to the plain loop", "by the wall clock",
    "ratio to the float32 loop", "fewer operations", "tokens", "10^12 operations", "share of the ceiling",
    "plain loop's share", "padding", "tokenisation",
)  # fmt: skip

HEAD = """\
# Throughput: scoring answers with a local model

On a GPU scoring is ten times as fast as a plain loop or more, short of the aim of twenty on RAGTruth's long answers; on
a CPU less than twice in the same precision, and about three times in bfloat16 against float32, which misses the aim of
five. The sections say why.

Measured: how many answers a second get both sides of the lift, with and without the evidence, beside a plain loop over
the same answers in the same run: tokenise, one forward pass with all logits, log-softmax, gather, one answer at a time.
Ours reads a prompt once for all its answers, projects response positions only, and batches. The model is
SmolLM2-135M-Instruct (Q4_1, dequantised). The script stops if the two ways disagree on the log-probabilities.

Operations are 2 x parameters x tokens, plus the projection to the vocabulary where it is needed; attention is not
counted. The ceiling is a large matrix product in the same precision, measured in the same run."""

CPU_ABOUT = """\
One thread, on a machine that others use at the same time. Ratios and shares are therefore of the process's own CPU
time, which the neighbours disturb less; answers a second are by the wall clock and will differ elsewhere. Few answers
are measured, so that it takes minutes; padding is less where there are more to choose from."""

GPU_ABOUT = """\
Ratios are of the wall clock; the script waits for the device before it reads it."""


if __name__ == "__main__":
    main()
