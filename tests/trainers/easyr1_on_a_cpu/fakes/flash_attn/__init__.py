"""A fake of flash-attn: its padding functions alone, which are no kernels."""
