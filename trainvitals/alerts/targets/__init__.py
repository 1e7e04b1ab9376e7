"""One file per kind of receiver: how a message looks there, how it is signed, and what of an answer means that it has arrived."""
