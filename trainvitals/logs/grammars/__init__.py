"""One trainer's way of writing a file, and what several of them share."""
