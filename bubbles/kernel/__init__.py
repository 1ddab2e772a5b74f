"""One turn as a fold over its journal, and the requests made from it. It does not know files, clocks, chance, platforms or providers."""
