# shellcheck shell=sh
# DCGM's daemon starts "$program", which runs a diagnosis and can outlive dcgmi. Ends those that are not among the
# process ids "$@", of before. dcgmi has asked the daemon to end them, which may take "$patience_s" seconds. Prints a
# line when it ends some itself.
: "${program?}" "${patience_s?}"
left=
for pid in $(ps -C "$program" -o pid=); do
  case " $* " in *" $pid "*) ;; *) left=${left:+$left,}$pid ;; esac
done
alive() { [ -n "$left" ] && ps -o state= -p "$left" | grep -qv Z; }
n=0
while alive && [ "$n" -lt "$patience_s" ]; do n=$((n + 1)); sleep 1; done
alive || exit 0
echo "DCGM's $program (process $left) still ran after dcgmi, and was ended"
for signal in TERM KILL; do
  for pid in $(echo "$left" | tr , ' '); do kill -s "$signal" "$pid" 2>/dev/null; done
  for n in 1 2 3 4 5 6 7 8 9 10; do
    alive || exit 0
    sleep 0.1
  done
done
echo "DCGM's $program (process $left) does not end" >&2
exit 1
