"""contune side by side with its peers: the same work, in one process, on the same tensors."""
