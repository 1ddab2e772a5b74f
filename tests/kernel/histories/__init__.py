"""Histories of chance, the requests made of them, and what three vendors refuse in a request."""
