"""``run -- COMMAND``: starts a trainer, says why it ended, and starts it again from the checkpoint that is safe."""
