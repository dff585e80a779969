#!/usr/bin/env bash
# Slurm on this machine alone, as a user's own processes below one folder: for sweeps whose trials go through a queue,
# and for the test of them.
#
#   scripts/slurm-on-one-machine.sh start FOLDER     starts munged, slurmctld and slurmd; prints what to export
#   scripts/slurm-on-one-machine.sh stop FOLDER      ends them
#
# Needs root and the packages of the distribution: apt-get install slurmctld slurmd slurm-client munge. Its files, its key
# included, lie in FOLDER. Ports 16817 and 16818 have to be free.
set -euo pipefail
[ $# = 2 ] || { sed -n '2,10s/^# \?//p' "$0" >&2; exit 2; }
action=$1; mkdir -p "$2"; folder=$(cd "$2" && pwd); host=$(hostname -s)
for program in munged slurmctld slurmd sbatch; do
  command -v $program > /dev/null || PATH=$PATH:/usr/sbin command -v $program > /dev/null || {
    echo "slurm is not installed: $program is missing (apt-get install slurmctld slurmd slurm-client munge)" >&2; exit 3; }
done
export PATH=$PATH:/usr/sbin SLURM_CONF=$folder/slurm.conf
end() {  # the process of a pid file, if it is the program that is expected
  local pid; pid=$(cat "$folder/$1.pid" 2> /dev/null) || return 0
  [ "$(cat "/proc/$pid/comm" 2> /dev/null)" = "$1" ] || return 0
  kill "$pid"
  for _ in $(seq 50); do [ -d "/proc/$pid" ] || return 0; sleep 0.1; done
  kill -9 "$pid" 2> /dev/null || true
}
stop() { end slurmctld; end slurmd; end munged; }
case $action in
  stop) stop;;
  start)
    [ "$(id -u)" = 0 ] || { echo "slurmd needs root" >&2; exit 3; }
    stop; rm -rf "$folder/state" "$folder/spool"; mkdir -p "$folder/state" "$folder/spool"
    dd if=/dev/urandom of="$folder/munge.key" bs=1 count=1024 status=none
    chmod 600 "$folder/munge.key"
    cat > "$SLURM_CONF" << CONF
ClusterName=one
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
SlurmdPort=16818
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
ReturnToService=2
MpiDefault=none
KillWait=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
    # The key and its folder have to be root's alone.
    munged --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" --pid-file "$folder/munged.pid" \
           --seed-file "$folder/munged.seed" --log-file "$folder/munged.log"
    slurmctld -f "$SLURM_CONF"; slurmd -f "$SLURM_CONF"
    for _ in $(seq 100); do
      [ "$(sinfo -h -o %T 2> /dev/null)" = idle ] && { echo "export SLURM_CONF=$SLURM_CONF PATH=\$PATH:/usr/sbin"; exit 0; }
      sleep 0.2
    done
    echo "slurm did not come up: see $folder/slurmctld.log and $folder/slurmd.log" >&2; stop; exit 4;;
  *) echo "expected start or stop" >&2; exit 2;;
esac
