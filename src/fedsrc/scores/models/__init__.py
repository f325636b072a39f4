"""Language models, embeddings and entailment, opened by what a user calls them."""
