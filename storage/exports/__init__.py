"""Questions of runs and their votes as files: JSONL, CSV, Parquet, and a folder for Hugging Face."""
