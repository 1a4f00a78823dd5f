#!/bin/sh
# Runs PHP or Ruby from the packages that debian.sh has unpacked, or those of the machine if there was nothing to
# unpack: unpacked.sh ROOT php|ruby PROGRAM [ARGUMENT]...
set -eu

usr=$1/usr
language=$2
shift 2
if [ -d "$usr" ]; then
  libraries=$(echo "$usr"/lib/*-linux-gnu)
  export LD_LIBRARY_PATH="$libraries"
  ruby=$(echo "$usr"/lib/ruby/[0-9]*)
  export RUBYLIB="$usr/lib/ruby/vendor_ruby:$ruby:$libraries/ruby/${ruby##*/}"
  export GEM_PATH="$usr/share/rubygems-integration/all"
fi
case $language in
  php)
    program=$(echo "$usr"/bin/php[0-9]*.[0-9])
    [ -x "$program" ] || program=php
    exec "$program" -d include_path=".:$usr/share/php:/usr/share/php" "$@"
    ;;
  ruby)
    program=$usr/bin/ruby
    [ -x "$program" ] || program=ruby
    exec "$program" "$@"
    ;;
esac
