"""The paper's mathematics in the paper's symbols: pure functions, arrays in, arrays out.

Nothing here reads a file, a clock or a generator, and nothing imports the rest of fedsrc.
`paper/notation.md` lists the symbols, `paper/claims.toml` maps each equation to its function and test.
"""
