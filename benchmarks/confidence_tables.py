"""Print the tables of `docs/results/confidence.md`.

python benchmarks/confidence_tables.py [FOLDER]      # by default results/confidence
"""

import sys
from pathlib import Path

from planet_bayes.results.confidence import tables

if __name__ == "__main__":
    print(tables(Path(*sys.argv[1:2] or ["results/confidence"])))
