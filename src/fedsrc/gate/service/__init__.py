"""The gate as a small HTTP service. Needs the extra `gate`."""
