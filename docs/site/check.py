"""Whether a built site is whole and keeps to itself: python docs/site/check.py build/docs

Every link to a page, a file or an anchor of the site must lead somewhere, no page, style or script may ask another host
for anything, and no formula may be left in its source. Links that lead to other hosts are not followed.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
FORMULA = re.compile(r"\\[a-zA-Z]+|\$\$")
LITERAL = ("pre", "code", "script", "style")
ASKED = re.compile(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"]?(https?:)?//|fetch\(\s*['\"](https?:)?//")


class Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.formulas: list[str] = []
        self.literal = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.literal += tag in LITERAL
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found and found.get("rel") not in ("canonical", "search", "index"):
            self.loads.append(found[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self.literal -= tag in LITERAL

    def handle_data(self, data: str) -> None:
        if not self.literal:
            self.formulas += FORMULA.findall(data)


def problems(root: Path) -> list[str]:
    """What is wrong with a site, in words."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in root.rglob("*.html")}
    found = [] if pages else [f"{root} has no page"]
    for path, page in pages.items():
        where = path.relative_to(root.resolve())
        found += [f"{where}: a formula is left in its source, {each}" for each in page.formulas]
        for link in page.loads + page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                found += [f"{where} loads {link}"] if link in page.loads and parts.scheme != "data" else []
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{where}: there is no {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{where}: {link} has no such anchor")
    for path in [*root.rglob("*.css"), *root.rglob("*.js")]:
        if ASKED.search(path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(root)} asks another host")
    return sorted(set(found))


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    whole = f"The site is whole, and asks no other host for anything. Open {sys.argv[1]}/index.html"
    print("\n".join(wrong) or whole)
    sys.exit(1 if wrong else 0)
