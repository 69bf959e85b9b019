"""Language models as judges: their prompts, how their replies are read, and questions that test them."""
