#!/bin/sh
# Installs a Redis or Valkey server by the system's package manager, for the tests and the demo.
set -eu
echo 'redis-server is not installed: installing it by the system package manager'
if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi

if command -v apt-get > /dev/null; then
  # The servers that the tests need are their own; the package must not start one.
  trap '$sudo rm -f /usr/sbin/policy-rc.d' EXIT
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' | $sudo tee /usr/sbin/policy-rc.d > /dev/null
    $sudo chmod +x /usr/sbin/policy-rc.d
  else
    trap - EXIT
  fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq redis-server
elif command -v dnf > /dev/null; then
  $sudo dnf install -y redis || $sudo dnf install -y valkey
elif command -v apk > /dev/null; then
  $sudo apk add redis || $sudo apk add valkey
elif command -v pacman > /dev/null; then
  $sudo pacman -S --noconfirm valkey
elif command -v brew > /dev/null; then
  brew install redis
else
  echo 'no known package manager: install redis-server or valkey-server, or set REDIS_SERVER' >&2
  exit 1
fi
