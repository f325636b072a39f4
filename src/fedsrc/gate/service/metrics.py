"""What the service counts, in Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from fedsrc.gate.decision import ACCEPTED, REASONS, Reason
from fedsrc.gate.gate import Status

REFUSED = (404, 405, 408, 413, 421, 422, 429, 500)
MONITOR = ("certified", "still supported", "alarm", "no valid status")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})  # of a label
Samples = Iterable[tuple[Mapping[str, str], float]]


class Metrics:
    """Counts since the start. One event loop counts, so nothing needs a lock."""

    def __init__(self) -> None:
        self.decisions: Counter[Reason] = Counter(dict.fromkeys(REASONS, 0))
        self.refused: Counter[int] = Counter(dict.fromkeys(REFUSED, 0))

    def refuse(self, status: int) -> None:
        self.refused[status] += 1

    def text(self, status: Status) -> str:
        return "".join(f"{line}\n" for line in self._lines(status))

    def _lines(self, status: Status) -> Iterator[str]:
        decisions: Samples = [
            ({"outcome": "accepted" if reason == ACCEPTED else "abstained", "reason": reason}, count)
            for reason, count in self.decisions.items()
        ]
        refused: Samples = [({"status": str(code)}, count) for code, count in self.refused.items()]
        reloads: Samples = [({"result": "taken"}, status.renewals), ({"result": "refused"}, status.refused)]
        yield from _family("fedsrc_gate_decisions_total", "counter", "Decisions, by outcome and reason.", decisions)
        yield from _family("fedsrc_gate_refused_requests_total", "counter", "Error responses, by status.", refused)
        yield from _family("fedsrc_gate_reloads_total", "counter", "Renewed certificates, by what became of them.",
                           reloads)  # fmt: skip
        yield from _family("fedsrc_gate_accepting", "gauge", "1 if a perfect score would be accepted now.",
                           [({}, float(status.accepting))])  # fmt: skip
        yield from _family("fedsrc_gate_certificate_seconds_left", "gauge", "Seconds until the certificate expires.",
                           [({}, status.seconds_left)])  # fmt: skip
        yield from _family("fedsrc_gate_threshold", "gauge", "The threshold in force, of each group if there are any.",
                           _thresholds(status))  # fmt: skip
        if status.monitor or status.monitor_problem:
            now = "no valid status" if status.monitor_problem else status.monitor
            yield from _family("fedsrc_gate_monitor", "gauge", "1 for where the monitor stands.",
                               [({"state": each}, float(each == now)) for each in MONITOR])  # fmt: skip
        yield from _family("fedsrc_gate_target_risk", "gauge", "The risk that is promised of accepted answers.",
                           [({"certificate": status.certificate}, status.target_risk)])  # fmt: skip


def _thresholds(status: Status) -> Samples:
    certificate = {"certificate": status.certificate}
    if status.groups is None:
        return [] if status.threshold is None else [(certificate, status.threshold)]
    shown = {name: value for name, value in status.groups.items() if value is not None}
    return [({**certificate, "group": name}, value) for name, value in shown.items()]


def _family(name: str, kind: str, words: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{text.translate(ESCAPES)}"' for label, text in labels.items())
        yield f"{name}{{{inside}}} {value!r}" if inside else f"{name} {value!r}"
