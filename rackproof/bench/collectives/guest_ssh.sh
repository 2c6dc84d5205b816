# shellcheck shell=sh
# inside: runs a script in the guest as root, within limit_s. key: private key, or empty. as: prefix of another account.
: "${address?}" "${port?}" "${user?}" "${key?}" "${limit_s?}" "${as?}"
inside() {
  # shellcheck disable=SC2016
  coded=$(printf 'PATH=$PATH:/usr/sbin:/sbin\n%s\n' "$1" | base64 | tr -d '\n')
  become='sudo -n '
  [ "$user" != root ] || become=
  set -- -p "$port" -l "$user" -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 \
    -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o ControlPath=none -o ClearAllForwardings=yes -o LogLevel=ERROR
  [ -z "$key" ] || set -- "$@" -o IdentitiesOnly=yes -i "$key"
  ssh "$@" -- "$address" \
    "${become}env LC_ALL=C timeout -k 5 $limit_s ${as}sh -c 'eval \"\$(echo $coded | base64 -d)\"'"
}
