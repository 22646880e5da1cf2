#!/bin/sh
# Make results/learns again, one core for each run. What is stopped goes on when called again.
# Usage, in the folder of the repository, after `make setup`:
#   learns.sh sensors|pixels TASK SEED [SETTING …] | baselines | collect | show
set -eu
bin=.venv/bin
case "${1-}${2:+ task}${3:+ seed}" in
"sensors task seed" | "pixels task seed")
	preset=quick
	[ "$1" = sensors ] || preset=laptop
	run="runs/learns/$2-$1-$3" task=$2 seed=$3
	shift 3
	if [ -f "$run/config.json" ]; then
		exec $bin/planet-bayes train --resume "$run" "$@"
	fi
	exec $bin/planet-bayes train --preset $preset --task "$task" --seed "$seed" --threads 1 \
		--train.episodes 60 --train.evaluate-every 20 --train.evaluate-last 10 \
		--train.evaluation-episodes 1 --train.video-every 0 --run "$run" "$@"
	;;
baselines)
	$bin/python -m planet_bayes.experiments.archive baselines results/learns \
		cartpole_swingup cup_catch finger_spin cheetah_run walker_run
	;;
collect)
	$bin/python -m planet_bayes.experiments.archive collect results/learns \
		$(ls -d runs/learns/*-sensors-[0-9] runs/learns/*-pixels-[0-9] 2>/dev/null)
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
