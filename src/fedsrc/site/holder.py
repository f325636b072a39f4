"""One holder of all sites' units: a round is one release over them, and one transaction of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fedsrc.protocol.messages import Refusal, Request
from fedsrc.protocol.registration import Registration
from fedsrc.site.admission import RefusedError, admit
from fedsrc.site.site import Site, release_together


@dataclass(frozen=True)
class Holder:
    """The sites of one table, by name, behind one ledger. Each of them must admit what is asked."""

    registration: Registration
    sites: Mapping[str, Site]

    def answer(self, request: Request) -> bytes:
        """Check a request that was made in this process, and release for it."""
        if len(request.parts or ()) != len(self.registration.sites):
            raise RefusedError(Refusal.NOT_AS_REGISTERED, "the holder refuses a request that does not name every site")
        for name in self.registration.parts(request):
            site = self.sites[name]
            admit(request, name, site.ledger, site.key, serves=self.registration)
        return release_together(self.sites, request)
