"""Throughput of TransformersModel.score beside a plain loop over the same answers, in the same run.

Writes docs/results/throughput.md, the section of the given device; the other device's section is kept. Run:
    python -m research.benchmarks.throughput DATA_FOLDER --model PATH.gguf
        [--device cpu|cuda] [--dtype float32 bfloat16] [--answers COUNT]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from fedsrc.data.answers import Answer
from fedsrc.data.halueval import Task, read_halueval
from fedsrc.data.ragtruth import read_noted
from fedsrc.data.selection import keep
from fedsrc.maths.arrays import Floats
from fedsrc.scores.models.model import Prompted, TokenScores
from fedsrc.scores.models.transformers_model import TransformersModel, load
from fedsrc.scores.prompts import prompt
from research.throughput_page import ANSWERS, MATRIX, REPEATS, SECTIONS, Clock, Row, Taken, Work, section, write

TASKS: tuple[Task, ...] = ("qa", "dialogue")
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.1}  # mean difference of log-probabilities to the loop's


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
    write(args.device, section(measure(args), args))


if __name__ == "__main__":
    main()
