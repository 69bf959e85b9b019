"""A fake of flash-attn: it has only the padding functions, which need no GPU kernels."""
