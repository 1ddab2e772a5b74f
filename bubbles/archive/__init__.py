"""A home as one file, taken while its daemons run and are killed, and put in place again whole or not at all. README.md says why that holds."""
