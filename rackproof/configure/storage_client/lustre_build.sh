# shellcheck shell=sh
# Builds the packages of Lustre's client for the running kernel from its unpacked sources.
: "${ofed?}" "${target?}"
[ -x configure ] || sh autogen.sh
set -- --disable-server --with-linux="/lib/modules/$(uname -r)/build"
[ ! -d "$ofed" ] || set -- "$@" --with-o2ib="$ofed"
{ ./configure "$@" >build.log 2>&1 && make "$target" >>build.log 2>&1; } || { tail -n 5 build.log >&2; exit 1; }
