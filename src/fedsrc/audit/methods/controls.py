"""Negative controls: rules with one step left out. They are not valid, and a study shows what the step is for.

noise ignored, noise variance halved, shift ignored, a fixed-time rule stopped early, and methods for exact counts fed
with noised ones. Names of the first four are the paper's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedsrc.audit.methods import anytime_crc, betting, csa, fixed_time, ltt, shipped, yu_liu
from fedsrc.audit.methods.setting import Aim, Evidence, Method, Verdict
from fedsrc.maths.betting import Covariance

Change = Callable[[Evidence], Evidence]


def noise_scaled(evidence: Evidence, factor: float) -> Evidence:
    """Return the same sums with their noise understated by that factor."""
    return replace(evidence, noise=Covariance(*(factor * v for v in evidence.noise)))


def ignore_noise(evidence: Evidence) -> Evidence:
    """Apply the clean bound to noised counts.

    Paper: Appendix "Baselines", Noise-ignored.
    """
    return noise_scaled(evidence, 0.0)


def halve_noise(evidence: Evidence) -> Evidence:
    """Halve the noise variance.

    Paper: Appendix "Client, shift, and negative-control scenarios".
    """
    return noise_scaled(evidence, 0.5)


def ignore_shift(evidence: Evidence) -> Evidence:
    """Set eta to 0.

    Paper: Appendix "Baselines", Shift-ignored.
    """
    return replace(evidence, eta=np.zeros_like(evidence.eta))


def clipped(evidence: Evidence) -> Evidence:
    """Make noised sums look like counts: rounded, A in [1, N], Z in [0, A], and the noise forgotten.

    Paper: Appendix "Comparator and score contract", the naive private adaptation.
    """
    A = np.clip(np.rint(evidence.accepted), 1.0, evidence.records[..., None])
    Z = np.clip(np.rint(evidence.unsupported), 0.0, A)
    return ignore_noise(replace(evidence, accepted=A, unsupported=Z))


def broken(method: Method, name: str, change: Change) -> Method:
    """Return the method on changed evidence, as a control."""

    def judge(evidence: Evidence, aim: Aim) -> Verdict:
        return method.rule(change(evidence), aim)

    return replace(
        method, name=name, rule=judge, role="control", private=False, anytime=False, proved=False, misled=True
    )


def naive(method: Method) -> Method:
    """Return a method for exact counts that is fed with noised ones."""
    return broken(method, f"naive-{method.name}", clipped)


def stopped(method: Method) -> Method:
    """Return a method for one look fixed beforehand that is stopped at its first certificate.

    Paper: Appendix "Client, shift, and negative-control scenarios", fixed-time after stopping.
    """
    name = f"{method.name}-after-stopping"
    return replace(method, name=name, role="control", anytime=False, proved=False, stops="at any look")


CHANGES: dict[str, Change] = {
    "noise-ignored": ignore_noise, "noise-halved": halve_noise, "shift-ignored": ignore_shift
}  # fmt: skip
PROVED = (*(each for each in shipped.METHODS if each.name.startswith("fed-src")), betting.METHODS[0])
EXACT = (ltt.METHODS[-2], *anytime_crc.METHODS, yu_liu.METHODS[0], *csa.METHODS)
FIXED = (*fixed_time.METHODS, ltt.METHODS[-2], yu_liu.METHODS[0])

METHODS = (
    *(broken(method, f"{method.name}-{name}", change) for method in PROVED for name, change in CHANGES.items()),
    *(naive(method) for method in EXACT),
    *(stopped(method) for method in FIXED),
)
