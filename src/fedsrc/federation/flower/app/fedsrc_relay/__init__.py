"""What runs inside Flower. Nothing here reads records or a ledger."""
