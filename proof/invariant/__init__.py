"""The inductive invariant: conjuncts that hold at the beginning and that every transition keeps."""
