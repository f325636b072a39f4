"""A gate in front of a model proxy, as a guardrail of it: texts come in and are scored here. Needs the extra `gate`."""
