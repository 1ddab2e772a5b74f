"""The daemon that owns every session: it takes messages in, runs their turns, and lets answers out."""
