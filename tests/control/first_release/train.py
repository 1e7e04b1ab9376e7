"""A training loop with the first released client, in a process of its own: started with this directory alone on its path.

argv: run directory, run. Each step waits for a line on stdin and answers with one JSON line: the step, what `at_step` said, steps saved.
"""

import json
import sys

from trainvitals.control import ControlClient

saves = []
client = ControlClient(sys.argv[1], run=sys.argv[2], on_checkpoint=saves.append, poll_s=0.02)
print(json.dumps({"start": client.at_start()}), flush=True)
for line in sys.stdin:
    answer = client.at_step(int(line))
    print(json.dumps({"step": int(line), "answer": answer, "saves": saves}), flush=True)
    if answer == "stop":
        break
client.close()
