"""A fake of qwen-vl-utils, which needs torchvision: texts only here."""
