# A real Slurm of its own: munged, slurmctld and slurmd of one node, in a folder of the test's, for the calling user (root or not), on
# free ports and with a key of its own.  Source it; slurm_start FOLDER [CPUS]; slurm_stop.  Everything that it starts ends with slurm_stop.
# shellcheck shell=bash
PATH=$PATH:/usr/sbin:/sbin

slurm_missing() { # the first program that is not there
    local program
    for program in munged slurmctld slurmd sbatch scancel squeue scontrol; do
        command -v $program >/dev/null || { echo $program; return; }
    done
}

slurm_port() { # a free TCP port
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

slurm_start() {
    slurm_folder=$1
    local cpus=${2:-4} host user f
    host=$(hostname -s) user=$(id -un) f=$slurm_folder
    mkdir -p "$f"/{munge,state,spool}
    chmod 755 "$f"
    chmod 700 "$f/munge"
    dd if=/dev/urandom of="$f/munge/key" bs=128 count=1 2>/dev/null
    chmod 600 "$f/munge/key"
    munged --foreground --force --key-file="$f/munge/key" --socket="$f/munge/socket" --pid-file="$f/munge/pid" \
        --log-file="$f/munge/log" --seed-file="$f/munge/seed" >"$f/munge/out" 2>&1 &
    slurm_munged=$!
    cat >"$f/slurm.conf" <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(slurm_port)
SlurmdPort=$(slurm_port)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$f/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$f/state
SlurmdSpoolDir=$f/spool
SlurmctldPidFile=$f/slurmctld.pid
SlurmdPidFile=$f/slurmd.pid
SlurmctldLogFile=$f/slurmctld.log
SlurmdLogFile=$f/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
SchedulerParameters=batch_sched_delay=1,sched_interval=2,requeue_delay=1
MinJobAge=600
KillWait=20
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=1000 State=UNKNOWN
PartitionName=spot Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE MaxTime=60 State=UP
PartitionName=first Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=60 State=UP
EOF
    export SLURM_CONF=$f/slurm.conf
    slurmctld -D >"$f/slurmctld.out" 2>&1 &
    slurm_ctld=$!
    slurmd -D >"$f/slurmd.out" 2>&1 &
    slurm_d=$!
    for _ in $(seq 150); do
        [ "$(sinfo -h -o %T 2>/dev/null | head -1)" = idle ] && return 0
        sleep 0.2
    done
    return 1
}

slurm_stop() { # slurmd waits for its steps, for ever if one is stuck
    local daemons=("${slurm_d:-}" "${slurm_ctld:-}" "${slurm_munged:-}") pid
    [ -z "${slurm_ctld:-}" ] || timeout 10 scancel -u "$(id -un)" 2>/dev/null
    for pid in "${daemons[@]}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null; done
    for _ in $(seq 100); do
        for pid in "${daemons[@]}"; do [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && break; done || break
        sleep 0.1
    done
    for pid in "${daemons[@]}"; do [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null; done
    wait "${daemons[@]}" 2>/dev/null
    return 0
}
