"""`python -m tools.bench [--json] [--quick] [--million [N]] [--traces]`: measured figures against their limits.

Exit code 1 if a limit is missed on the wall clock and on processor time.
"""

import argparse
import sys

from tools.bench.figures import show
from tools.bench.measures import REQUESTS, all_figures, million
from tools.bench.traces import traces


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quick", action="store_true", help="few repeats, to see that it runs")
    parser.add_argument("--million", type=int, nargs="?", const=REQUESTS, metavar="N", help="replay N requests as well")
    parser.add_argument(
        "--traces", action="store_true", help="replay whole traces on one, two and four workers as well"
    )
    options = parser.parse_args(arguments)
    figures = [*all_figures(options.quick), *(million(options.million) if options.million else ())]
    figures += traces() if options.traces else ()
    show(figures, options.json)
    return int(any(figure.verdict == "missed" for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
