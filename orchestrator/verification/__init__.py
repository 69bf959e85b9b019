"""`coevo verify`: whether what is stored of a run is consistent, recomputed from the raw rows. Nothing is changed."""
