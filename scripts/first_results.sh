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
	$bin/python -m planet_bayes.experiments.archive baselines results/first cartpole_swingup
	;;
collect)
	$bin/python -m planet_bayes.experiments.archive collect results/first runs/first/*
	;;
figure)
	$bin/python -m planet_bayes.experiments.figures results/first
	;;
*)
	sed -n 's/^# //p' "$0" >&2
	exit 2
	;;
esac
