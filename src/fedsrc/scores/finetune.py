"""The small model fine-tuned as a detector: low-rank adapters and a token head, trained on development answers.

What comes out is the same pair as a probe: a model that gives hidden states, and a linear head over its last layer.
LoRA: Hu et al., 2022 (through the peft library).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.scores.logistic import Logistic
from fedsrc.scores.model import Floats, Prompted
from fedsrc.scores.probe import Probe, token_labels
from fedsrc.scores.transformers_model import HINT, Texts, TransformersModel, batches

LAST = -1


@dataclass(frozen=True)
class Training:
    """How the adapter is trained; everything that decides it but the answers and the model."""

    rank: int = 16
    epochs: int = 5
    rate: float = 5e-4
    head_rate: float = 2e-3
    dropout: float = 0.05
    batch_tokens: int = 16384
    width: int = 5
    seed: int = 0

    def plain(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Labelled:
    """A response to learn from: the places of its unsupported characters."""

    pair: Prompted
    spans: tuple[tuple[int, int], ...]


def fine_tune(
    model: TransformersModel,
    stages: Sequence[Sequence[Labelled]],
    training: Training = Training(),  # noqa: B008 (frozen)
    tell: Callable[[str], None] = lambda _: None,
    keep: Path | None = None,
) -> tuple[TransformersModel, Probe]:
    """Train an adapter and a head on each stage in turn; the adapter is merged, and kept as a folder if asked."""
    torch, peft = _libraries()
    torch.manual_seed(training.seed)
    config = peft.LoraConfig(
        r=training.rank, lora_alpha=2 * training.rank, lora_dropout=training.dropout, target_modules="all-linear"
    )
    network = peft.get_peft_model(model.network, config)
    head = torch.nn.Linear(model.network.config.hidden_size, 1, device=model.network.device, dtype=torch.float32)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    for number, stage in enumerate(stages, start=1):
        tell(f"stage {number} of {len(stages)}: {len(stage):,} answers")
        _train(model, network, head, stage, training, tell)
    if keep is not None:
        network.save_pretrained(keep)
    merged = network.merge_and_unload().eval()
    weights = head.weight.detach().double().cpu().numpy()[0]
    flat = Logistic(np.zeros_like(weights), np.ones_like(weights), weights, float(head.bias.detach()))
    tuned = TransformersModel(merged, model.tokenizer, {**model.identity, "adapter": f"LoRA {training.rank}"})
    return tuned, Probe(LAST, training.width, flat)


def with_adapter(model: TransformersModel, folder: Path) -> TransformersModel:
    """The model with a kept adapter merged in."""
    _, peft = _libraries()
    merged = peft.PeftModel.from_pretrained(model.network, folder).merge_and_unload().eval()
    return TransformersModel(merged, model.tokenizer, {**model.identity, "adapter": "LoRA"})


def _train(
    model: TransformersModel,
    network: Any,
    head: Any,
    stage: Sequence[Labelled],
    training: Training,
    tell: Callable[[str], None],
) -> None:
    torch, _ = _libraries()
    texts = model.encode([each.pair for each in stage])
    labels = [token_labels(r.offsets, each.spans) for r, each in zip(texts.responses, stage, strict=True)]
    lengths = [len(texts.prompts[r.prompt]) + len(r.ids) for r in texts.responses]
    groups = list(batches(lengths, training.batch_tokens))
    steps = training.epochs * len(groups)
    adapter = [each for each in network.parameters() if each.requires_grad]
    optimiser = torch.optim.AdamW(
        [{"params": adapter, "lr": training.rate}, {"params": head.parameters(), "lr": training.head_rate}],
        weight_decay=0.01,
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, [training.rate, training.head_rate], total_steps=max(2, steps), pct_start=0.1
    )
    network.train()
    for epoch in range(training.epochs):
        total = 0.0
        for place in torch.randperm(len(groups)).tolist():
            group = groups[place]
            loss = _loss(model, network, head, texts, labels, group)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(adapter, 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(group)
        tell(f"epoch {epoch + 1} of {training.epochs}, mean loss {total / len(stage):.4f}")
    network.eval()


def _loss(
    model: TransformersModel, network: Any, head: Any, texts: Texts, labels: Sequence[Floats], group: list[int]
) -> Any:
    """Mean over the group's responses of their mean token log-loss: a long response counts as much as a short one."""
    torch, _ = _libraries()
    rows = [[*texts.prompts[texts.responses[i].prompt], *texts.responses[i].ids] for i in group]
    ids, mask = model.padded(rows, None, left=False)
    base = network.base_model.model.base_model
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
        states = base(input_ids=ids, attention_mask=mask).last_hidden_state
    losses = []
    for row, (i, tokens) in enumerate(zip(group, rows, strict=True)):
        count = len(labels[i])
        risk = head(states[row, len(tokens) - count : len(tokens)].float())[:, 0]
        target = torch.as_tensor(labels[i], dtype=torch.float32, device=risk.device)
        losses.append(torch.nn.functional.binary_cross_entropy_with_logits(risk, target))
    return torch.stack(losses).mean()


def _libraries() -> tuple[Any, Any]:
    try:
        import peft
        import torch
    except ImportError as error:
        raise FedsrcError("fine-tuning needs torch and peft", hint=HINT) from error
    return torch, peft
