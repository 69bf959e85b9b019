"""Language models as judges: what they are asked, how they are read, and questions that test them."""
