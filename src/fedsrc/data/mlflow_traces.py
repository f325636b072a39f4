"""Traces of MLflow with their assessments: people's feedback is the label, that of judges and code are scores.

A person's word that was overridden does not count. A judge's does: people override judges where these are wrong, and a
score that is missing there would say so. An expectation is no feedback.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from fedsrc.data.logs import SOURCE, Entry, Reading, Word, text_in
from fedsrc.errors import FedsrcError, MissingExtraError

PREFIX = "mlflow:"
UNIT = ("mlflow.trace.session", "mlflow.trace.user", *SOURCE)
PEOPLE = {"HUMAN": True, "LLM_JUDGE": False, "CODE": False}
ASKED = ("question", "query", "user_input", "input", "prompt", "request")
SAID = ("answer", "response", "output", "result", "completion")


def read_mlflow(experiment: str, reading: Reading) -> tuple[list[Entry], Counter[str]]:
    """Read the traces of an experiment, by name or id, from the tracking server that MLflow is set to."""
    try:
        import mlflow
    except ImportError as error:
        raise MissingExtraError("mlflow", "mlflow") from error
    try:
        found = mlflow.get_experiment_by_name(experiment)
        known = (found or mlflow.get_experiment(experiment)).experiment_id
        traces = mlflow.search_traces(locations=[known], return_type="list")
    except Exception as error:  # its own, the database's, the network's
        hint = "name an experiment, and the tracking server in MLFLOW_TRACKING_URI"
        raise FedsrcError(f"cannot be read: {error}", where=PREFIX + experiment, hint=hint) from error
    return entries_of(sorted(traces, key=lambda each: (each.info.request_time, each.info.trace_id)), reading)


def entries_of(traces: Iterable[Any], reading: Reading) -> tuple[list[Entry], Counter[str]]:
    """Turn traces into entries; one that ended in an error, or has not ended, is no answer."""
    found, skipped = list[Entry](), Counter[str]()
    for trace in traces:
        if str(getattr(trace.info.state, "value", trace.info.state)) != "OK":
            skipped["traces that failed or have not ended"] += 1
            continue
        said = sorted(trace.info.assessments or (), key=lambda each: each.create_time_ms or 0)
        feedback = [each for each in said if getattr(each, "feedback", None) is not None]
        skipped["assessments that are no feedback"] += len(said) - len(feedback)
        words = [
            (Word(each.name, each.value, PEOPLE.get(str(each.source.source_type))), each.valid) for each in feedback
        ]
        kept = tuple(word for word, valid in words if valid is not False or not word.human)
        skipped["people's words that were overridden"] += len(words) - len(kept)
        found.append(
            Entry(
                id=trace.info.trace_id,
                words=kept,
                source=reading.source({**trace.info.tags, **trace.info.trace_metadata}, UNIT),
                question=text_in(_parsed(trace.data.request), ASKED),
                evidence=text_in([span.outputs for span in trace.data.spans if span.span_type == "RETRIEVER"]),
                response=text_in(_parsed(trace.data.response), SAID),
            )
        )
    return found, skipped


def _parsed(text: Any) -> Any:
    """Return what JSON says; other text as it is."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text
