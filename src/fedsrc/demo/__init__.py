"""The demo: the whole flow on 10,000 real answers whose scores come with the package; no model is needed."""
