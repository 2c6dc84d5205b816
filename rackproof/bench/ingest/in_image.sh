# shellcheck shell=sh
# Runs a command in a container of docker or podman, with the storage, the GPUs and the network of the node, as the
# account that measures. The container ends with its own limit, also where its runtime's client was killed.
: "${engine?}" "${image?}" "${user?}" "${account?}" "${home?}" "${mark?}" "${limit_s?}" "${mountpoints?}" "${gpus?}" "${label?}"
set -- "$image" -k 10 "$limit_s" "$@"
for path in $mountpoints; do
  set -- --volume "$path:$path:rslave" "$@"
done
for device in /dev/infiniband/*; do
  [ ! -c "$device" ] || set -- --device "$device" "$@"
done
case $engine$gpus in
  docker1) set -- --gpus all "$@" ;;
  podman1) set -- --device nvidia.com/gpu=all "$@" ;;
esac
exec "$engine" run --rm --label "$label" --pull=never --log-driver=none --network=host --ipc=host --userns=host --user "$user" --cap-drop=all \
  --security-opt=no-new-privileges --security-opt=label=disable --ulimit memlock=-1:-1 \
  --env "$mark" --env "HOME=$home" --env "USER=$account" --env "LOGNAME=$account" \
  --workdir "$home" --volume "$home:$home" --entrypoint timeout "$@"
