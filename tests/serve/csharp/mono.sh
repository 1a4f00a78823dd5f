#!/bin/sh
# Runs a .NET program with Mono from the packages that debian.sh has unpacked, or that of the machine if there was nothing
# to unpack: mono.sh ROOT PROGRAM [ARGUMENT]... The program `mcs` is the compiler.
set -eu

root=$1
program=$2
shift 2
usr=$root/usr
if [ -d "$usr" ]; then
  libraries=$usr/lib/mono/4.5
  export LD_LIBRARY_PATH="$usr/lib" MONO_PATH="$libraries" MONO_CFG_DIR="$root/etc"
  [ "$program" != mcs ] || exec "$usr/bin/mono-sgen" "$libraries/mcs.exe" -lib:"$libraries" "$@"
  exec "$usr/bin/mono-sgen" "$program" "$@"
fi
[ "$program" != mcs ] || exec mcs "$@"
exec mono "$program" "$@"
