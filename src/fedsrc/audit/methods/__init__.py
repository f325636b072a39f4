"""The methods the certificate is compared with, one file each, all on the same evidence.

    evidence = gather(accepted, unsupported, records, noise=..., unit=..., eta=..., sites=...)
    verdict = METHODS["fed-src-c"].judge(evidence, Aim(target_risk=0.2))

A method carries its assumptions as data. Formulas keep the symbols of their sources; evidence, aim and verdict speak
words (`setting`). `NATIVE` holds methods whose guarantee is of another kind, reported in its own terms.
"""

from __future__ import annotations

from itertools import chain

from fedsrc.audit.methods import (
    anytime_crc,
    betting,
    c_rag,
    capital,
    conformal_abstention,
    controls,
    csa,
    fcp,
    fedcp_qq,
    federated,
    fixed_time,
    local_only,
    ltt,
    narrower,
    nprr,
    private_e_values,
    private_sequence,
    schedule,
    shipped,
    unit_betting,
    yu_liu,
)
from fedsrc.audit.methods.native import Native
from fedsrc.audit.methods.setting import Method

_ALL = (
    ltt.METHODS, federated.METHODS, local_only.METHODS, c_rag.METHODS, yu_liu.METHODS, anytime_crc.METHODS, csa.METHODS,
    fixed_time.METHODS, schedule.METHODS, shipped.METHODS, narrower.METHODS, private_sequence.METHODS,
    private_e_values.METHODS, nprr.METHODS, betting.METHODS, capital.METHODS, controls.METHODS, (ltt.IN_SEQUENCE,),
    unit_betting.METHODS,
)  # fmt: skip
METHODS: dict[str, Method] = {method.name: method for method in chain(*_ALL)}
NATIVE: dict[str, Native] = {
    method.name: method for method in (*conformal_abstention.NATIVE, *fcp.NATIVE, *fedcp_qq.NATIVE)
}
