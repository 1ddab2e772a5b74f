"""What `bubbles models` tells: the models that can be asked, where a name leads, and what each can do and costs."""
