#!/bin/sh
# Installs rlock: sh install.sh FROM [PREFIX]
#
# FROM   a tarball with SHA256SUMS next to it, or the directory or URL that contains them. From a
#        directory or URL, the tarball for this machine is installed.
# PREFIX /usr/local unless given
set -eu

die() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

case $#:${1:-}:${2:-/} in
[12]:[!-]*:/*) ;;
*) die 'usage: sh install.sh TARBALL|DIRECTORY|URL [PREFIX]' ;;
esac
from=${1%/}
prefix=${2:-/usr/local}

case $(uname -s):$(uname -m) in
Linux:x86_64) machine=x86_64 ;;
Linux:aarch64) machine=aarch64 ;;
*) die "no binary for $(uname -s) on $(uname -m); build rlock from its source" ;;
esac
case $from in
*-"$machine-linux.tar.gz")
    name=${from##*/}
    from=$(dirname "$from")
    ;;
*.tar.gz) die "not for this machine, which is $machine: $from" ;;
*) name="rlock-.*-$machine-linux.tar.gz" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# fetch NAME copies a file into the working directory.
fetch() {
    case $from in
    https://* | http://*) curl -fsSL -o "$work/$1" "$from/$1" || wget -q -O "$work/$1" "$from/$1" ;;
    *) cp "$from/$1" "$work/$1" ;;
    esac || die "cannot get $from/$1"
}

fetch SHA256SUMS
grep -x "[0-9a-f]*  $name" "$work/SHA256SUMS" >"$work/sum" || die "no $name in $from/SHA256SUMS"
[ "$(wc -l <"$work/sum")" = 1 ] || die "several versions in $from; name one tarball"
name=$(cut -d ' ' -f 3 "$work/sum")
fetch "$name"
(cd "$work" && sha256sum -c sum >/dev/null) || die "$name is damaged: it does not match SHA256SUMS"

# tar replaces files, so a running rlock keeps its own.
{ mkdir -p "$prefix" && tar -xzf "$work/$name" -C "$prefix" --strip-components=1; } ||
    die "cannot install to $prefix; run this as root, or name a PREFIX"
installed=$("$prefix/bin/rlock" --version) || die "$prefix/bin/rlock does not run on this machine"
printf '%s is installed as %s\n' "$installed" "$prefix/bin/rlock"
