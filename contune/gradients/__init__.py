"""`contune analyze`: how strongly positives pull and negatives push in a trained run, over k1, k2 and similarity."""
