"""The pages: they read what the poller holds, and draw it."""
