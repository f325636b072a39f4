"""Flower as the carrier: its processes, keys and addresses, and the app that runs inside it."""
