"""A fake of qwen-vl-utils, which needs torchvision; the tests use texts only."""
