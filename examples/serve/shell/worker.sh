#!/usr/bin/env bash
# Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
#
#   QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 ./worker.sh 42
#
# To hold a lock while one command runs, `quorlock run` is simpler, and needs no daemon.
set -euo pipefail

order=$1

# A lease belongs to a connection, so one redis-cli runs as long as the script. With --json, a reply is one line.
coproc LOCKS { exec redis-cli -s "$QUORLOCK_SOCKET" --json; }

# Sends a request, and sets `reply`. Fails if the reply is an error.
ask() {
  { printf '"%s" ' "$@" && echo; } >&"${LOCKS[1]}"
  IFS= read -r reply <&"${LOCKS[0]}" && [[ $reply != error:* ]]
}

if ! ask LOCK "orders:$order" WAIT 1000; then
  [[ $reply == 'error:"TIMEOUT '* ]] || { echo "$reply" >&2; exit 1; }
  echo "order $order is being handled"
  exit
fi
IFS=, read -r lease fence _ <<< "${reply//[\[\]\"]/}"
echo "order $order locked, fence $fence"
redis-cli -u "$SHOP_URL" BLPOP "payments:$order" 0 > /dev/null
ask CHECK "$lease" || { echo "$reply" >&2; exit 1; }
if [[ $(redis-cli -u "$SHOP_URL" EVAL "$(< ../write.lua)" 1 "order:$order" "$fence" paid) != 1 ]]; then
  echo 'a later worker has written' >&2
  exit 1
fi
echo "order $order paid"
ask UNLOCK "$lease"
