"""Validates trajectories by the models of the `atif` package: check_atif.py FILE...

Prints a line of JSON for each file: a summary of the parsed trajectory.
"""

import json
import pathlib
import sys

from atif import Trajectory

for name in sys.argv[1:]:
    trajectory = Trajectory.model_validate_json(pathlib.Path(name).read_bytes())
    calls = [call for step in trajectory.steps for call in step.tool_calls or []]
    results = [result for step in trajectory.steps if step.observation for result in step.observation.results]
    answered = {result.source_call_id: result.content for result in results if result.source_call_id}
    summary = {
        "version": trajectory.schema_version,
        "run": trajectory.trajectory_id,
        "agent": trajectory.agent.name,
        "sources": [step.source for step in trajectory.steps],
        "messages": [step.message for step in trajectory.steps],
        "calls": [[call.function_name, call.arguments, answered.get(call.tool_call_id)] for call in calls],
        "results": len(results),
    }
    print(json.dumps(summary))
