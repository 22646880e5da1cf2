#!/bin/sh
# Make results/learns again, one core for each run. What is stopped goes on when called again.
# Usage: learns.sh sensors|pixels TASK SEED | baselines | collect | show
set -eu
bin=.venv/bin
case "${1-}" in
sensors | pixels)
	case "$1-$2" in
	sensors-cartpole_swingup | sensors-cup_catch) episodes=30 ;;
	sensors-finger_spin) episodes=25 ;;
	sensors-*) episodes=60 ;;
	pixels-*) episodes=200 ;;
	esac
	preset=quick
	[ "$1" = sensors ] || preset=laptop
	run="runs/learns/$2-$1-$3"
	if [ -f "$run/config.json" ]; then
		exec $bin/planet-bayes train --resume "$run"
	fi
	exec $bin/planet-bayes train --preset $preset --task "$2" --seed "$3" --threads 1 \
		--train.episodes "$episodes" --train.evaluate-every 20 --train.evaluate-last 10 \
		--train.evaluation-episodes 1 --train.video-every 0 --run "$run"
	;;
baselines)
	$bin/python - <<-'PYTHON'
		import json
		import numpy as np
		from planet_bayes.envs import EnvConfig, random_return

		tasks = ("cartpole_swingup", "cup_catch", "finger_spin", "cheetah_run", "walker_run")
		levels = {}
		for task in tasks:
		    levels[task] = {}
		    for policy in ("random", "zero"):
		        returns = random_return(task, EnvConfig("state"), 50, 0, policy)
		        levels[task][policy] = {
		            "mean": float(np.mean(returns)),
		            "std": float(np.std(returns)),
		            "episodes": len(returns),
		        }
		with open("results/learns/baselines.json", "w") as file:
		    json.dump(levels, file, indent=2)
		    file.write("\n")
	PYTHON
	;;
collect)
	for run in runs/learns/*-sensors-[0-9] runs/learns/*-pixels-[0-9]; do
		[ -f "$run/metrics.csv" ] || continue
		$bin/python - "$run" <<-'PYTHON' || { echo "$run has not ended: left out"; continue; }
			import json, sys
			from pathlib import Path
			run = Path(sys.argv[1])
			last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["episode"]
			sys.exit(last != json.loads((run / "config.json").read_text())["train"]["episodes"])
		PYTHON
		name=$(basename "$run") # cup_catch-sensors-0
		folder="results/learns/planet_bayes/${name%-*}"
		mkdir -p "$folder"
		cp "$run/metrics.csv" "$folder/seed-${name##*-}.csv"
		cp "$run/config.json" "$folder/seed-${name##*-}.json"
	done
	;;
show)
	$bin/python -m planet_bayes.experiments.figures results/learns
	$bin/python -m planet_bayes.experiments.summary results/learns
	;;
*)
	sed -n 's/^# //p' "$0" >&2
	exit 2
	;;
esac
