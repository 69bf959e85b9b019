"""Questions that no Challenger wrote: held-out benchmarks and given prompt sets."""
