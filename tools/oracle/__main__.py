"""`python -m tools.oracle scenario.json ... [-o answers.json]`: one line of JSON an answer, in the order given."""

import argparse
import json
import sys
from pathlib import Path

from tools.oracle.errors import ScenarioError, Stalled
from tools.oracle.simulation import simulate


def answer(source: str) -> str:
    """Read a scenario from a file, or from standard input for `-`, and answer it."""
    text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    return json.dumps(simulate(json.loads(text)), separators=(",", ":"))


def main(arguments: list[str] | None = None) -> int:
    """Answer every scenario or none; a refusal is one line on standard error and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m tools.oracle", description="Token times of scenarios, as JSON.")
    parser.add_argument("scenarios", nargs="+", metavar="scenario.json", help="a scenario, or - for standard input")
    parser.add_argument("-o", "--output", type=Path, help="write the answers here instead of standard output")
    options = parser.parse_args(arguments)
    answers = []
    for source in options.scenarios:
        try:
            answers.append(answer(source))
        except (OSError, json.JSONDecodeError, ScenarioError, Stalled) as error:
            print(f"{source}: {error}", file=sys.stderr)
            return 2
    text = "\n".join(answers) + "\n"
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
