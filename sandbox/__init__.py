"""The inside of a jail: what it is made of, which system calls it has, and how it reaches the network. It imports nothing of Bubbles."""
