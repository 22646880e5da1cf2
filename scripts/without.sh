#!/bin/sh
# Make results/without again: `quick` without one of its settings, one core for each run.
# Usage, in the folder of the repository, after `make setup`: without.sh SETTING TASK SEED | collect | show
set -eu
bin=.venv/bin
settings="nothing averaging means keep_elites normalise seed_episodes agent_weight candidate_decay kl_balance"
case "${1-}${2:+ task}${3:+ seed}" in
*" task seed")
	case "$1" in
	nothing) ;;
	averaging) set -- "$@" --train.averaging 0 ;;
	means) set -- "$@" --model.belief sample --model.latent-noise shared ;;
	keep_elites) set -- "$@" --planner.keep-elites 0 ;;
	normalise) set -- "$@" --model.normalise False ;;
	seed_episodes) set -- "$@" --train.seed-episodes 5 --train.first-updates 0 ;;
	agent_weight) set -- "$@" --train.agent-weight 1 ;;
	candidate_decay) set -- "$@" --planner.candidate-decay 1 ;;
	kl_balance) set -- "$@" --loss.kl-balance None --loss.free-nats 3 ;;
	*) echo "$1 is none of: $settings" >&2 && exit 2 ;;
	esac
	run="runs/without/$1/$2-$3"
	if [ -f "$run/config.json" ]; then
		exec $bin/planet-bayes train --resume "$run"
	fi
	task=$2 seed=$3
	shift 3
	exec $bin/planet-bayes train --preset quick --task "$task" --seed "$seed" --threads 1 --run "$run" "$@"
	;;
collect)
	for setting in $settings; do
		[ ! -d "runs/without/$setting" ] || $bin/python -m planet_bayes.experiments.archive \
			collect "results/without/$setting" "runs/without/$setting"/*
	done
	;;
show)
	$bin/python -m planet_bayes.experiments.changes results/without
	;;
*)
	sed -n 's/^# //p' "$0" >&2
	echo "SETTING is one of: $settings" >&2
	exit 2
	;;
esac
