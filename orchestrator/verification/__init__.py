"""`coevo store verify`: whether what is stored of a run follows from its raw rows, by the loop's own functions."""
