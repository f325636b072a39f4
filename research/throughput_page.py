"""The page of throughput: how many times as fast as a plain loop, and how far from what the machine can do."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fedsrc.scores.models.transformers_reader import BATCH_TOKENS
from research.pages import RESULTS, markdown

T = TypeVar("T")
PAGE = RESULTS / "throughput.md"
SECTIONS = {"cpu": "## On a CPU", "cuda": "## On a GPU"}
MATRIX = {"cpu": 2048, "cuda": 8192}
REPEATS, ANSWERS, AIM, GPU_AIM = 2, 16, 5, 20


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


@dataclass(frozen=True)
class Compared:
    """A row's ratios, in the time that its device's clock compares."""

    row: Row
    ratio: float  # to the plain loop
    across: float | None  # to the plain loop in float32
    fewer: float  # operations
    reached: float  # of the ceiling
    plain_reached: float


def compared(row: Row, clock: Clock) -> Compared:
    ours, loop = clock.seconds(row.ours), clock.seconds(row.plain)
    return Compared(
        row,
        loop / ours,
        clock.seconds(row.in_float32) / ours if row.in_float32 else None,
        row.work.plain_operations / row.work.operations,
        row.work.operations / ours / row.ceiling,
        row.work.plain_operations / loop / row.ceiling,
    )


def cells(row: Row, clock: Clock) -> list[str]:
    found = compared(row, clock)
    return [
        row.name, row.dtype, f"{row.answers:,}", f"{row.answers / row.ours.wall:.2f}", f"{found.ratio:.1f}",
        f"{row.plain.wall / row.ours.wall:.1f}", "–" if found.across is None else f"{found.across:.1f}",
        f"{found.fewer:.1f}", f"{row.work.read:,}", f"{row.work.operations / 1e12:,.2f}",
        share(found.reached), share(found.plain_reached),
        share(1 - row.work.read / row.work.padded), share(clock.seconds(row.tokenising) / clock.seconds(row.ours)),
    ]  # fmt: skip


def share(value: float) -> str:
    return f"{100 * value:.1f}%" if value < 0.1 else f"{100 * value:.0f}%"


def section(rows: Sequence[Row], args: argparse.Namespace) -> str:
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
    found = [compared(row, clock) for row in rows]
    full, half = ([each for each in found if each.row.dtype == dtype] for dtype in ("float32", "bfloat16"))
    if not full or not half:
        return ""
    same, fewer = span([each.ratio for each in found]), span([each.fewer for each in found])
    busy, beside = span([100 * each.plain_reached for each in full], 0), span(across(half))
    return f"""\
**The aim of {AIM} times is not reached on a CPU.** In the same precision ours is {same} times as fast, in
bfloat16 {beside} times as fast as the loop in float32. The loop wastes little that batching could win back: one
answer alone already keeps the CPU at {busy}% of what a large matrix product reaches. What
is left is fewer operations, {fewer} times fewer by reading prompts once and projecting response positions only
(of which shorter passes and padding take some back), and cheaper ones. To be {AIM} times as fast as the float32 loop,
the operations that remain would have to run at {span(needed(full), 0)}% of the ceiling in float32, which cannot
be, and at {span(needed(half), 0)}% in bfloat16, with attention and softmax, which are not counted, for free.
bfloat16 changes scores a little: use one precision throughout a run. Tokenisation does not matter."""


def gpu_reading(rows: Sequence[Row], clock: Clock) -> str:
    """Where the aim is reached, and how far from the ceiling both ways stay."""
    found = [compared(row, clock) for row in rows]
    missed = [f"{each.row.name} in {each.row.dtype}" for each in found if each.ratio < GPU_AIM]
    loop = [row.answers / clock.seconds(row.plain) for row in rows]
    busy = span([100 * each.plain_reached for each in found])
    own = {
        dtype: [100 * each.reached for each in found if each.row.dtype == dtype]
        for dtype in dict.fromkeys(row.dtype for row in rows)
    }
    aim = f"**The aim of {GPU_AIM} times is missed** for {', '.join(missed)}." if missed else "That is the aim."
    at = ", ".join(f"{span(shares, 0)}% in {dtype}" for dtype, shares in own.items())
    same, beside = span([each.ratio for each in found], 0), span(across(found), 0)
    return f"""\
Ours is {same} times as fast as the loop in the same precision, {beside} times as
fast as the loop in float32. {aim}
Read the ratios by their size alone. One answer at a time leaves a GPU idle: the loop read {span(loop, 0)} answers a
second however long they were, at {busy}% of the ceiling. It is the host that binds it, and another host gives
other ratios. Of the ceiling ours reaches {at}: a model of 135M parameters is
small for this device, and so few answers fill a batch or two and leave much padding."""


def across(found: Sequence[Compared]) -> list[float]:
    """How many times as fast as the float32 loop."""
    return [each.across for each in found if each.across is not None]


def needed(found: Sequence[Compared]) -> list[float]:
    """Per cent of the ceiling at which our operations would be AIM times as fast as the float32 loop."""
    return [100 * AIM * each.reached / each.across for each in found if each.across is not None]


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
