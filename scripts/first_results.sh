#!/bin/sh
# Make results/first again: three seeds from sensors and one run from pixels, one core each.
# Usage: first_results.sh sensors SEED | pixels EPISODES | baselines | collect | figure
set -eu
bin=.venv/bin
case "$1" in
sensors)
	$bin/planet-bayes train --preset quick --seed "$2" --threads 1 --run "runs/first/sensors-$2"
	;;
pixels)
	$bin/planet-bayes train --preset laptop --threads 1 --train.episodes "$2" --run runs/first/pixels-0
	;;
baselines)
	$bin/python - <<-'PYTHON'
		import json
		import numpy as np
		from planet_bayes.envs import EnvConfig, random_return

		levels = {}
		for policy in ("random", "zero"):
		    returns = random_return("cartpole_swingup", EnvConfig("state"), 50, 0, policy)
		    levels[policy] = {
		        "mean": float(np.mean(returns)),
		        "std": float(np.std(returns)),
		        "episodes": len(returns),
		    }
		with open("results/first/baselines.json", "w") as file:
		    json.dump({"cartpole_swingup": levels}, file, indent=2)
		    file.write("\n")
		print(levels)
	PYTHON
	;;
collect)
	for run in runs/first/*; do
		kind=$(basename "$run") # sensors-0
		$bin/python - "$run" <<-'PYTHON' || { echo "$run has not ended: left out"; continue; }
			import json, sys
			from pathlib import Path
			run = Path(sys.argv[1])
			last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["episode"]
			sys.exit(last != json.loads((run / "config.json").read_text())["train"]["episodes"])
		PYTHON
		folder="results/first/planet_bayes/cartpole_swingup-${kind%-*}"
		mkdir -p "$folder"
		cp "$run/metrics.csv" "$folder/seed-${kind#*-}.csv"
		cp "$run/config.json" "$folder/seed-${kind#*-}.json"
	done
	;;
figure)
	$bin/python -m planet_bayes.experiments.figures results/first
	;;
*)
	sed -n 's/^# //p' "$0" >&2
	exit 2
	;;
esac
