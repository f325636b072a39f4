# %% [markdown]
# # In a notebook
#
# One call takes an export to a signed certificate. This page is `examples/notebook.py`, a script of cells that Jupyter
# and most editors open as a notebook; what stands below a cell came out of it. First an export to try it on, as a
# spreadsheet writes it: Latin-1, semicolons, decimal commas, scores in percent, words for labels. Put in yours.

# %%
import random
from pathlib import Path

import fedsrc

random.seed(7)
rows = ["Frage;Grounding;Label"]
for number in range(4000):
    bad = random.random() < 0.35
    score = min(1, max(0, random.gauss(0.45 if bad else 0.7, 0.15)))
    rows.append(f"Größe {number}?;{100 * score:.1f};{'hallucinated' if bad else 'supported'}".replace(".", ","))
size = Path("export.csv").write_text("\n".join(rows), encoding="latin-1")

# %% [markdown]
# What is certain is found: separator, encoding, columns, label words, the score's scale. What is not is refused, with
# the argument that settles it. `run` at the end of a cell shows its card, in a frame of its own that loads nothing.

# %%
claim = {"system": "help desk, model A", "issuer": "Ana", "contact": "ana@example.org"}  # your words, for the card
run = fedsrc.certify("export.csv", target=0.2, epsilon=4, claim=claim, output="my-run")
run

# %% [markdown]
# A file, a polars or pandas frame, anything that speaks Arrow's interface, or two arrays of scores and losses go in.
# Every option of `fedsrc certify` is an argument of the same name: `--min-acceptance 0.2` is `min_acceptance=0.2`. An
# abstention is a run too. `fedsrc.forecast(...)` estimates beforehand, and spends nothing.

# %%
found = fedsrc.Run.open("my-run").certificate
print(found.status, found.threshold, found.risk_at_most, found.acceptance_at_least)
print(run.gate(trusted=[str(found.key)]).decide(93.0).reason)  # a score as the export writes it

# %% [markdown]
# A cell may be run twice: the same call on the same table releases nothing and returns the same run, also after the
# kernel died half-way. Records are released once in their life, so another target needs new records.

# %%
assert fedsrc.certify("export.csv", target=0.2, epsilon=4, claim=claim, output="my-run").certificate == found
try:
    fedsrc.certify("export.csv", target=0.1, epsilon=4, output="other-run")
except fedsrc.FedsrcError as problem:
    print(problem)
