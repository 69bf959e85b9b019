"""A fake of EasyR1's merger, for the shard of a single GPU."""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.numpy import load_file, save_file

if __name__ == "__main__":
    actor = Path(sys.argv[sys.argv.index("--local_dir") + 1])
    weights = load_file(actor / "model_world_size_1_rank_0.pt")
    save_file(weights, actor / "huggingface" / "model.safetensors", metadata={"format": "pt"})
