"""The small model fine-tuned as a detector: low-rank adapters and a token head, trained on development answers.

The head is a probe over the adapted model's last layer. The adapter stands beside the model's weights, never in them:
after training, and after scoring, the model is what it was before. LoRA: Hu et al., 2022 (through the peft library).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsrc.errors import FedsrcError
from fedsrc.maths.arrays import Floats
from fedsrc.scores.fitted.logistic import Logistic
from fedsrc.scores.fitted.probe import LAST, Probe, token_labels
from fedsrc.scores.models.model import Prompted
from fedsrc.scores.models.torch_tools import Texts, batches, memory, need
from fedsrc.scores.models.transformers_model import TransformersModel


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


@dataclass(frozen=True)
class Labelled:
    """A response to learn from: the places of its unsupported characters."""

    pair: Prompted
    spans: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Detector:
    """What fine-tuning leaves: a head over the last layer, and the adapter as the bytes of a safetensors file."""

    head: Probe
    rank: int
    adapter: bytes


def fine_tune(
    model: TransformersModel,
    answers: Sequence[Labelled],
    training: Training = Training(),  # noqa: B008 (frozen)
    tell: Callable[[str], None] = lambda _: None,
) -> Detector:
    """Train an adapter and a head."""
    torch = need("torch")
    torch.manual_seed(training.seed)
    head = torch.nn.Linear(model.network.config.hidden_size, 1, device=model.network.device, dtype=torch.float32)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    with _adapter(model, training.rank, training.dropout) as network, memory():
        tell(f"training on {len(answers):,} answers")
        _train(model, network, head, answers, training, tell)
        adapter = _bytes(network)
    weights = head.weight.detach().double().cpu().numpy()[0]
    flat = Logistic(np.zeros_like(weights), np.ones_like(weights), weights, float(head.bias.detach()))
    return Detector(Probe.of(LAST, training.width, flat), training.rank, adapter)


@contextmanager
def adapted(model: TransformersModel, detector: Detector) -> Iterator[TransformersModel]:
    """Yield the model with a detector's adapter; it is taken out when the block ends."""
    with _adapter(model, detector.rank, dropout=0.0) as network:
        _fill(network, detector.adapter)
        tuned = copy.copy(model)  # its network is the model's own, which holds the adapter now
        tuned.identity = {**model.identity, "adapter": f"LoRA {detector.rank}"}
        yield tuned


@contextmanager
def _adapter(model: TransformersModel, rank: int, dropout: float) -> Iterator[Any]:
    """Put a fresh adapter into every linear layer of the network, and take it out whatever happens."""
    peft = need("peft")
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=dropout, target_modules="all-linear")
    network = peft.get_peft_model(model.network, config)
    try:
        yield network.eval()
    finally:
        network.unload()
        model.network.eval()


def _state(network: Any) -> dict[str, Any]:
    return dict(need("peft").get_peft_model_state_dict(network, save_embedding_layers=False))


def _bytes(network: Any) -> bytes:
    """Return the adapter as a safetensors file: names, shapes and numbers, no code."""
    import safetensors.torch

    state = {name: values.detach().cpu().contiguous() for name, values in _state(network).items()}
    return bytes(safetensors.torch.save(state))


def _fill(network: Any, adapter: bytes) -> None:
    """Put kept numbers into a fresh adapter of exactly the same shape."""
    import safetensors
    import safetensors.torch

    try:
        state = safetensors.torch.load(adapter)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise FedsrcError(f"the adapter is not a safetensors file: {error}") from error
    shapes = ({name: tuple(values.shape) for name, values in each.items()} for each in (state, _state(network)))
    if next(shapes) != next(shapes):
        raise FedsrcError("the adapter does not fit the model", hint="score with the model it was fitted with")
    if not all(bool(need("torch").isfinite(values).all()) for values in state.values()):
        raise FedsrcError("the adapter holds numbers that are not finite")
    need("peft").set_peft_model_state_dict(network, state)


def _train(
    model: TransformersModel,
    network: Any,
    head: Any,
    answers: Sequence[Labelled],
    training: Training,
    tell: Callable[[str], None],
) -> None:
    torch = need("torch")
    texts = model.encode([each.pair for each in answers])
    labels = [token_labels(r.offsets, each.spans) for r, each in zip(texts.responses, answers, strict=True)]
    lengths = [len(texts.prompts[r.prompt]) + len(r.ids) for r in texts.responses]
    groups = list(batches(lengths, training.batch_tokens))
    adapter = [each for each in network.parameters() if each.requires_grad]
    optimiser = torch.optim.AdamW(
        [{"params": adapter, "lr": training.rate}, {"params": head.parameters(), "lr": training.head_rate}],
        weight_decay=0.01,
    )
    steps, rates = max(2, training.epochs * len(groups)), [training.rate, training.head_rate]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rates, total_steps=steps, pct_start=0.1)
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
        tell(f"epoch {epoch + 1} of {training.epochs}, mean loss {total / len(answers):.4f}")
    network.eval()


def _loss(
    model: TransformersModel, network: Any, head: Any, texts: Texts, labels: Sequence[Floats], group: list[int]
) -> Any:
    """Return the mean over responses of their mean token log-loss: long and short responses count alike."""
    torch = need("torch")
    rows = [[*texts.prompts[texts.responses[i].prompt], *texts.responses[i].ids] for i in group]
    ids, mask = model.padded(rows, left=False)
    base = network.base_model.model.base_model
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=ids.device.type == "cuda"):
        states = base(input_ids=ids, attention_mask=mask).last_hidden_state
    counts = np.array([len(labels[i]) for i in group])
    row = np.repeat(np.arange(len(group)), counts)
    place = np.concatenate([np.arange(len(tokens) - n, len(tokens)) for tokens, n in zip(rows, counts, strict=True)])
    target = np.concatenate([labels[i] for i in group])
    share = 1.0 / (counts[row] * len(group))
    row, place, target, share = (torch.as_tensor(each, device=ids.device) for each in (row, place, target, share))
    risk = head(states[row, place].float())[:, 0]
    each = torch.nn.functional.binary_cross_entropy_with_logits(risk, target.float(), reduction="none")
    return (each * share.float()).sum()
