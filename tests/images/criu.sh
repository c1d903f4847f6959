#!/usr/bin/env bash
# criu.sh DIR: a CRIU recent enough for this kernel below DIR, for tests; prints the command that runs it.
#
# From Debian's unstable suite at the mirror that this machine uses, with the libraries that it was
# built for; nothing is installed. Users get CRIU from their distribution (docs/images.md).
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
command=$folder/criu
if [ -x "$command" ]; then echo "$command"; exit; fi

# Not what a comment names: a snapshot of the archive goes on after its name.
mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list* 2>/dev/null | head -n 1) || true
[ -n "$mirror" ] || { echo "criu.sh: no Debian mirror among the sources of apt" >&2; exit 1; }
lists=$(mktemp -d); trap 'rm -rf "$lists"' EXIT
mkdir -p "$lists"/{state/lists/partial,cache/archives/partial,debs}; : > "$lists/status"
echo "deb $mirror sid main" > "$lists/sources.list"
cat > "$lists/apt.conf" <<CONF
Dir::Etc::sourcelist "$lists/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "$lists/state";
Dir::State::status "$lists/status";
Dir::Cache "$lists/cache";
APT::Sandbox::User "";
CONF
export APT_CONFIG=$lists/apt.conf
{
    apt-get update -qq
    needed=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances criu | grep -E '^[a-z0-9]' | sort -u |
        grep -vE '^(cdebconf|debconf|dpkg|gcc-.*-base|iptables|libc-bin|perl|python3|tar)')
    (cd "$lists/debs" && apt-get download -qq $needed)
    for package in "$lists"/debs/*.deb; do dpkg-deb -x "$package" "$folder/root"; done
} >&2
printf '#!/bin/sh\nexec %s --library-path %s %s "$@"\n' \
    "$folder/root/usr/lib64/ld-linux-x86-64.so.2" "$folder/root/usr/lib/x86_64-linux-gnu" \
    "$folder/root/usr/sbin/criu" > "$command"
chmod +x "$command"
"$command" --version >&2
echo "$command"
