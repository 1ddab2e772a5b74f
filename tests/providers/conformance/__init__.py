"""One suite over every provider of the registry, each against a server that speaks that vendor's own protocol."""
