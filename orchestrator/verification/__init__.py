"""`coevo verify`: whether what is stored of a run follows from its raw rows, by the functions of the loop itself."""
