"""Conversions against OpenDP, dp-accounting and exact sums; calibration inverts conversion; the filter holds.

Mutants killed: conversions swapped, delta and eps confused, log(1/delta) halved, a filter that checks afterwards.
"""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsrc.maths import privacy
from tests.support.formulas import scale_analytic

EPSILONS = [0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0]


def opendp_epsilon(scale: float, delta: float) -> float:
    dp.enable_features("contrib")
    mechanism = dp.m.make_gaussian(
        dp.vector_domain(dp.atom_domain(T="i64"), size=1), dp.l2_distance(T="f64"), scale=scale
    )
    return float(dp.c.make_zCDP_to_approxDP(mechanism).map(1.0).epsilon(delta))


@pytest.mark.parametrize("eps", EPSILONS)
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_tight_conversion_agrees_with_opendp(eps: float, delta: float) -> None:
    rho = privacy.rho_tight(eps, delta)
    scale = privacy.scale_of_rho(1.0, rho)
    assert opendp_epsilon(scale, delta) == pytest.approx(eps, rel=1e-6)


@pytest.mark.parametrize("eps", EPSILONS)
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_order_of_scales(eps: float, delta: float) -> None:
    """The paper's scale is above the tight one, which is above the exact continuous one."""
    paper = privacy.scale_of_rho(1.0, privacy.rho_paper(eps, delta))
    tight = privacy.scale_of_rho(1.0, privacy.rho_tight(eps, delta))
    assert paper > tight > scale_analytic(1.0, eps, delta)


@pytest.mark.parametrize("eps", EPSILONS)
def test_analytic_scale_agrees_with_dp_accounting(eps: float) -> None:
    expected = dp_accounting.get_sigma_gaussian(eps, 1e-6)
    assert scale_analytic(1.0, eps, 1e-6) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("eps", [0.5, 1.0, 4.0, 8.0])
def test_tight_conversion_is_valid_for_the_continuous_mechanism(eps: float) -> None:
    """dp-accounting's privacy-loss distribution never needs more epsilon than we claim."""
    scale = privacy.scale_of_rho(1.0, privacy.rho_tight(eps, 1e-6))
    pld = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(scale)
    assert pld.get_epsilon_for_delta(1e-6) <= eps


@pytest.mark.parametrize("eps", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_tight_conversion_is_valid_for_the_discrete_mechanism(eps: float) -> None:
    """delta(eps) of the integer-valued noise, summed exactly (Canonne, Kamath and Steinke 2020, Theorem 7)."""
    s = privacy.scale_of_rho(1.0, privacy.rho_tight(eps, 1e-6))
    z = np.arange(-int(60 * s) - 5, int(60 * s) + 6)
    p = np.exp(-(z**2) / (2 * s * s))
    p /= p.sum()
    shifted = np.exp(-((z - 1) ** 2) / (2 * s * s))
    shifted /= shifted.sum()
    assert np.maximum(p - math.exp(eps) * shifted, 0).sum() <= 1e-6
    smaller = 0.7 * s  # a mutant with too little noise is caught
    q, t = np.exp(-(z**2) / (2 * smaller**2)), np.exp(-((z - 1) ** 2) / (2 * smaller**2))
    assert np.maximum(q / q.sum() - math.exp(eps) * t / t.sum(), 0).sum() > 1e-6


@given(st.floats(1e-3, 50), st.floats(1e-12, 0.1))
@settings(deadline=None)
def test_calibration_inverts_conversion(eps: float, delta: float) -> None:
    assert privacy.epsilon_paper(privacy.rho_paper(eps, delta), delta) == pytest.approx(eps, rel=1e-9)
    tight = privacy.epsilon_tight(privacy.rho_tight(eps, delta), delta)
    assert tight <= eps
    assert tight == pytest.approx(eps, rel=1e-9)


@given(st.floats(1e-6, 10), st.floats(1e-12, 0.1))
@settings(deadline=None)
def test_tight_is_never_looser_than_the_papers(rho: float, delta: float) -> None:
    assert privacy.epsilon_tight(rho, delta) <= privacy.epsilon_paper(rho, delta) + 1e-12


def test_no_privacy_is_infinite() -> None:
    for conversion in ("tight", "paper"):
        assert math.isinf(privacy.rho_of(math.inf, 1e-6, conversion))
    assert privacy.scale_of_rho(2.0, math.inf) == 0.0
    assert math.isinf(privacy.rho_of_scale(2.0, 0.0))


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0, 3))
def test_the_filter_caps_every_path(charges: list[float], cap: float) -> None:
    """Whatever is asked, in whatever order, what the filter admits never adds up to more than the cap."""
    admitted: list[float] = []
    for charge in charges:
        if privacy.admits(privacy.compose(admitted), charge, cap):
            admitted.append(charge)
    assert privacy.compose(admitted) <= cap * (1 + 1e-9)


def test_composition_adds_up_to_a_known_guarantee() -> None:
    """Four releases of one unit at a quarter of rho cost the whole of rho (the paper's composition audit)."""
    rho = privacy.rho_paper(4.0, 1e-6)
    assert privacy.epsilon_paper(privacy.compose([rho / 4] * 4), 1e-6) == pytest.approx(4.0)
    assert privacy.epsilon_paper(privacy.compose([rho] * 4), 1e-6) > 8.0
