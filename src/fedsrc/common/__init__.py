"""What every room uses: canonical bytes, atomic writes, signatures, validated values, the clock, words."""
