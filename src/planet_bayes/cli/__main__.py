"""``python -m planet_bayes.cli`` is ``planet-bayes``."""

from planet_bayes.cli import main

raise SystemExit(main())
