#!/bin/sh
# Installs a Redis or Valkey server with the system's package manager, for the tests and the demo.
# Asks nothing, and neither starts a server nor enables one at boot.
set -eu

if [ "$(id -u)" = 0 ]; then
  sudo=
elif command -v brew > /dev/null; then
  sudo=
elif sudo -n true 2> /dev/null; then
  sudo='sudo -n'
else
  echo 'redis-server is missing, and installing it needs root: install redis-server or valkey-server,' >&2
  echo 'or set REDIS_SERVER to the path of one' >&2
  exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a command, and shows its output only if it fails.
quietly() {
  "$@" > "$log" 2>&1 < /dev/null || { status=$?; cat "$log" >&2; return "$status"; }
}

install_by_apt() {
  # The package starts a server unless this program forbids it.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap 'rm -f "$log"; $sudo rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\nexit 101\n' | $sudo tee /usr/sbin/policy-rc.d > /dev/null
    $sudo chmod +x /usr/sbin/policy-rc.d
  fi
  quietly $sudo apt-get update -qq
  quietly $sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get install -y -qq redis-server
  # The package also enables the server at boot, which cannot be prevented in advance.
  quietly $sudo update-rc.d redis-server disable
}

if command -v apt-get > /dev/null; then
  install_by_apt
elif command -v dnf > /dev/null; then
  quietly $sudo dnf install -y redis || quietly $sudo dnf install -y valkey
elif command -v apk > /dev/null; then
  quietly $sudo apk add redis || quietly $sudo apk add valkey
elif command -v pacman > /dev/null; then
  quietly $sudo pacman -S --noconfirm valkey
elif command -v brew > /dev/null; then
  quietly brew install redis
else
  echo 'no known package manager: install redis-server or valkey-server, or set REDIS_SERVER' >&2
  exit 1
fi
