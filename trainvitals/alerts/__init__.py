"""What goes out to people: notices of incidents, the outbox that keeps them until they are delivered, one file per target."""
