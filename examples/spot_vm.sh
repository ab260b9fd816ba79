#!/usr/bin/env bash
# A run on a virtual machine that may be taken away at any time (spot, preemptible).  Make this the script of each start (a cloud's
# start-up script, or a line "@reboot spot_vm.sh ..." of crontab); the words behind the first are train_cv's:
#   spot_vm.sh 'shutdown -h now' --data /disk/cells.h5 --out /disk/runs/NAME --devices all --seeds 1-5
# The first word is what to do once the run is done ('' for nothing: the machine goes on costing).  /disk must outlive the machine.
#
# A machine that is taken away gets a shutdown, which sends TERM: train_cv writes checkpoints within a batch.  One that dies without a
# word loses what came after the last epoch (--checkpoint-minutes 5 makes that less).  The next start continues; a run that is done
# is summed up once more and the machine goes.
set -u
when_done=$1
shift
train_cv --resume-or-start --quiet "$@"
code=$?
case $code in
0) [ -z "$when_done" ] || exec sh -c "$when_done" ;;
129 | 130 | 138 | 143) ;; # stopped by a signal: the next start continues
*) echo "spot_vm.sh: train_cv ended with $code; starting again will not help before its message is dealt with" >&2 ;;
esac
exit $code
