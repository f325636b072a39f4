"""A finished run in the hands of a person: its certificate, its card in a notebook, its chart, its gate."""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

from fedsrc.common.durable import write_whole
from fedsrc.common.words import count
from fedsrc.errors import FedsrcError
from fedsrc.gate.gate import Gate
from fedsrc.protocol.certificate import Certificate
from fedsrc.protocol.registration import Registration
from fedsrc.report import charts
from fedsrc.report.card import card_text
from fedsrc.report.html import page
from fedsrc.report.phrases import percent_down
from fedsrc.report.standing import certified_of
from fedsrc.report.view import View, view_run
from fedsrc.server.folder import read_registration
from fedsrc.server.verify import Verified, revocation_of, verify

FRAME = (
    '<iframe title="fedsrc certificate card" sandbox srcdoc="{}"'
    ' style="width: 100%; height: 44rem; border: 1px solid #8886"></iframe>'
)


@dataclass(frozen=True)
class Chart:
    """A chart as SVG, which notebooks show."""

    svg: str

    def save(self, path: str | PathLike[str]) -> None:
        """Write the chart to an .svg file."""
        write_whole(Path(path), self.svg.encode())

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"Chart({len(self.svg):,} characters of SVG)"


@dataclass(frozen=True, repr=False)
class Run:
    """A run that has ended, with its certificate or its abstention. Notebooks show it as its card; `print` as text.

    Attributes:
        folder: Where the run lies: registration, transcript and certificate.
        registration: Everything that was fixed before the first calibration record was read.
        certificate: The signed result; see its `status`, `threshold`, `risk_at_most` and `acceptance_at_least`.

    Example:
        >>> run = Run.open("run/")
        >>> run.certificate.status
        'CERTIFIED'
        >>> run.certificate.risk_at_most <= 0.2
        True
    """

    folder: Path
    registration: Registration
    certificate: Certificate

    @classmethod
    def open(cls, folder: str | PathLike[str]) -> Run:
        """Open the folder of a run that has ended, and recompute its certificate.

        Args:
            folder: The folder, as `certify(..., output=folder)` or `fedsrc certify -o` left it.

        Returns:
            The run.

        Raises:
            FedsrcError: The run is still open, or the folder holds none.
            DamagedError: The certificate does not follow from the registration and the transcript.
        """
        path = Path(folder)
        return cls(path, read_registration(path), verify(path).certificate)

    def verify(self, *, trusted: Iterable[str] = ()) -> Verified:
        """Recompute the certificate from the files in the folder, as `fedsrc.verify` does.

        Args:
            trusted: Public keys, one of which must have signed.

        Returns:
            The certificate, and whether its key is trusted, whether it has expired, and whether it was revoked.

        Raises:
            FedsrcError: Something in the folder is not as it was signed, or no trusted key signed it.
        """
        return verify(self.folder, trusted=key_list(trusted))

    def gate(
        self, *, trusted: Iterable[str], claim: Mapping[str, object] | None = None, target: float | None = None
    ) -> Gate:
        """Open a gate on the certificate, as `fedsrc.Gate` does.

        Args:
            trusted: Public keys, one of which must have signed. Yours is `run.certificate.key`.
            claim: What the certificate must speak of, field by field.
            target: Another risk to promise: any that the evidence shows (`run.certificate.strongest`), or more.

        Returns:
            A gate that accepts scores which reach the certified threshold, that of the target, or that of their group.

        Raises:
            FedsrcError: The certificate does not show the target, has expired, or speaks of something else.

        Example:
            >>> run = Run.open("run/")
            >>> run.gate(trusted=[run.certificate.key]).accept(0.99)
            True
        """
        return Gate(self.folder, trusted=trusted, claim=claim, target=target)

    def plot(self, what: Literal["thresholds", "evidence"] = "thresholds", *, group: str | None = None) -> Chart:
        """Draw a chart of the card.

        Args:
            what: "thresholds" for risk and acceptance at each threshold, "evidence" for the risk bound by round.
            group: Whose thresholds, where every group has a claim of its own: the first, if none is named.

        Returns:
            A chart that notebooks show, with `svg` and `save`.

        Raises:
            FedsrcError: That group has no claim of its own.
        """
        view, groups = self._view(), self.certificate.by_group
        if (groups is None and group is None) or what == "evidence":
            return Chart(charts.standalone(charts.CHARTS[what](view)))
        member = None if groups is None else groups.member(group or groups.members[0].name)
        if member is None:
            raise FedsrcError(f"group {group!r} has no claim of its own", where=str(self.folder),
                              hint="the certificate's `by_group` lists those that have")  # fmt: skip
        return Chart(charts.standalone(charts.threshold_chart(view, member)))

    def __repr__(self) -> str:
        said = self.certificate
        if said.threshold is None or said.acceptance_lower is None:
            of = certified_of(said) if said.status == "CERTIFIED" else "nothing is certified"
            words = f"{said.status}: {of} for target risk {said.target_risk:g}"
        else:
            name = "score" if said.panel is None or said.panel.picked is None else said.panel.picked
            words = (
                f"{said.status}: {name} >= {said.threshold!r} accepts at least {percent_down(said.acceptance_lower)},"
                f" of which at most {100 * said.target_risk:g}% are unsupported"
            )
        return f"Run({words}; {count(said.records, said.privacy.unit)}; {str(self.folder)!r})"

    def __str__(self) -> str:
        command = f"fedsrc verify {shlex.quote(str(self.folder))}"
        revoked = revocation_of(self.certificate, self.folder)
        return card_text(self.certificate, registration=self.registration, verify=command, revoked=revoked)

    def _repr_html_(self) -> str:
        """The card in a frame of its own: its styles cannot leak into a notebook, nor the notebook's into it."""
        return FRAME.format(html.escape(page(self._view())))

    def _view(self) -> View:
        from fedsrc import __version__

        return view_run(self.folder, version=__version__)


def key_list(keys: Iterable[str]) -> tuple[str, ...]:
    """Public keys in a row; one key by itself is not taken for 64 of them."""
    return (keys,) if isinstance(keys, str) else tuple(keys)
