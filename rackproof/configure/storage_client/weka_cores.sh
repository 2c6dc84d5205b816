# shellcheck shell=sh
# Sets isolate_cpusets in WEKA's service.conf. Written to a temporary file and renamed: the agent never reads half of it.
: "${conf?}" "${isolate?}" "${agent?}"
if grep -q '^isolate_cpusets=' "$conf"; then
  sed "s/^isolate_cpusets=.*/$isolate/" "$conf" >"$conf.new"
else
  { cat "$conf"; echo "$isolate"; } >"$conf.new"
fi
chmod --reference="$conf" "$conf.new"
mv -f "$conf.new" "$conf"
systemctl try-restart "$agent"
