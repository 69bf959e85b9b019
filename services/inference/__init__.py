"""The Ray Serve applications that sample (the embedded engine, vLLM), and the client that asks them."""
