"""What a session keeps on disk: its directory, its history, and the journal of its running turn."""
