"""Certificates for people."""
