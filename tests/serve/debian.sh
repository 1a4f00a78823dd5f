#!/bin/sh
# Downloads packages of this Debian or Ubuntu release, with what they need, and unpacks them to ./root.
# Changes nothing else on the machine, and needs no root. Packages that are installed are left out.
set -eu

command -v apt-get > /dev/null || { echo 'error: needs apt-get' >&2; exit 1; }
rm -rf root cache
mkdir -p root lists/partial cache/archives/partial
options="-o Dir::State::lists=$PWD/lists -o Dir::Cache=$PWD/cache -o Debug::NoLocking=1 -o APT::Sandbox::User=$(id -un)"
apt-get $options -qq update
apt-get $options -qq install --download-only --no-install-recommends --yes "$@"
for package in cache/archives/*.deb; do
  if [ -e "$package" ]; then dpkg-deb --extract "$package" root; fi
done
rm -rf cache lists
