"""`python -m research.attacks`: measure every section, or one, and write docs/results/attacks.md from the records."""

from __future__ import annotations

import click

from research.attacks.page import PAGE, SECTIONS, page
from research.attacks.sections import keep
from research.pages import RESULTS


@click.command()
@click.option(
    "--only", type=click.Choice([each.name for each in SECTIONS]), multiple=True, help="Measure this section."
)
@click.option("--page", "render", is_flag=True, help="Measure nothing: write the page from the records.")
def main(only: tuple[str, ...], render: bool) -> None:
    """Measure the attacks and write the page."""
    for section in SECTIONS:
        if not render and (not only or section.name in only):
            click.echo(f"{section.name}: {section.title}", err=True)
            keep(section.name, section.run(1.0))
    (RESULTS / PAGE).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(prog_name="python -m research.attacks")
