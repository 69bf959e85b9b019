"""The services that a run asks and that are not part of it, judges among them."""
