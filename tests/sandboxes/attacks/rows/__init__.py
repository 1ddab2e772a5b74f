"""The attacks, a file for each thing that they are after; each has a list ATTACKS."""
