"""The parts that the stages of `orchestrator.loop` are made of, and the context in which a stage runs."""
