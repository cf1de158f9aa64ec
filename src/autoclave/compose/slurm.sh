#!/bin/bash
# Starts Ray on every node and trains on it. Submit with `sbatch`. The run folder and the Python environment must be on a
# file system that all nodes see. A run that reaches its time limit saves its state, is queued again and resumes.
#SBATCH --job-name={{name}}
#SBATCH --nodes={{nodes}}
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task={{cpus}}
#SBATCH --gpus-per-node={{gpus}}
#SBATCH --exclusive
#SBATCH --time={{time}}
#SBATCH --signal=B:TERM@{{grace}}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={{name}}-%j.log
set -eo pipefail
cd {{folder}}
export PATH={{bin}}:"$PATH"
{{setup}}
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))') # others on the network cannot use this Ray
# This script runs on the first node of the allocation, which is task 0 of srun.
head="$(python -c 'import ray.util; print(ray.util.get_node_ip_address())'):$((20000 + SLURM_JOB_ID % 10000))"
head="$head" srun --overlap --cpus-per-task={{cpus}} bash -c '
  if [ "$SLURM_PROCID" = 0 ]; then place="--head --port=${head##*:} --include-dashboard=false"; else place="--address=$head"; fi
  trap exit TERM
  for attempt in {1..20}; do # a node gives up where the head is slow to start
    ray start $place --num-cpus={{cpus}} --num-gpus={{gpus}} --min-worker-port=0 --max-worker-port=0 \
      --disable-usage-stats --block & wait "$!" || sleep 3
  done' &
cluster=$!
stopped="" code=1
trap 'kill "$cluster" && wait "$cluster" || :' EXIT # `set -e` holds here too, and would replace the exit code
# The signal comes to this script alone, which passes it to the run: Ray must live until the run has saved its state.
trap 'stopped=yes; [ "$!" = "$cluster" ] || kill -TERM "$!"' TERM
export RAY_ADDRESS="$head"
timeout 600 bash -c 'until python -c "
import ray
ray.init(log_to_driver=False)
assert sum(node[\"Alive\"] for node in ray.nodes()) >= {{nodes}}" 2>/dev/null; do sleep 1; done' ||
  { echo "Error: {{nodes}} Ray nodes did not start within 600 s. Fix: see the lines above" >&2; exit 3; }

if [ -z "$stopped" ]; then
  resume=""
  [ ! -f {{run}}/config.yaml ] || resume=--resume
  autoclave train {{recipe}} --out {{run}} $resume &
  wait "$!" && code=0 || code=$?
  [ -z "$stopped" ] || { wait "$!" && code=0 || code=$?; } # the signal ended the first wait
fi
if [ -n "$stopped" ] && [ "$code" != 0 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
