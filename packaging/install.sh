#!/bin/sh
# Installs rlock: sh install.sh FROM [PREFIX]
#
# FROM    a tarball with SHA256SUMS next to it, or the directory or URL that contains them. From a
#         directory or URL, the script installs the tarball for this machine.
# PREFIX  an absolute path; /usr/local by default
set -eu
# Others may use what is installed.
umask 022

die() {
    printf 'install.sh: %s\n' "$1" >&2
    exit 1
}

case $#:${1:-}:${2:-/} in
[12]:[!-]*:/*) ;;
*) die 'usage: sh install.sh TARBALL|DIRECTORY|URL [/PREFIX]' ;;
esac
from=${1%/}
prefix=${2:-/usr/local}

case $(uname -s):$(uname -m) in
Linux:x86_64) machine=x86_64 ;;
Linux:aarch64) machine=aarch64 ;;
*) die "no binary for $(uname -s) on $(uname -m); build rlock from source" ;;
esac
case $from in
*-"$machine-linux.tar.gz")
    name=${from##*/}
    from=$(dirname "$from")
    ;;
*.tar.gz) die "$from is not for this machine; use the tarball for $machine" ;;
*) name="rlock-[^/ ]*-$machine-linux.tar.gz" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# fetch NAME copies a file from the release into the working directory. Not with wget: it follows
# redirections from https to http, even with --https-only.
fetch() {
    case $from in
    https://*) curl -fsSL --proto =https --proto-redir =https -o "$work/$1" "$from/$1" ;;
    http://*) curl -fsSL --proto '=http,https' --proto-redir '=http,https' -o "$work/$1" "$from/$1" ;;
    *) cp "$from/$1" "$work/$1" ;;
    esac || die "cannot get $from/$1"
}
case $from in
http://* | https://*) command -v curl >/dev/null || die 'curl is missing; install it' ;;
esac

fetch SHA256SUMS
grep -x "[0-9a-f]*  $name" "$work/SHA256SUMS" >"$work/sum" ||
    die "the tarball for $machine is not in $from/SHA256SUMS"
[ "$(wc -l <"$work/sum")" = 1 ] || die "several versions in $from; pass one tarball"
name=$(cut -d ' ' -f 3 "$work/sum")
fetch "$name"
(cd "$work" && sha256sum -c sum >/dev/null) || die "$name is damaged: it does not match SHA256SUMS"

# tar replaces files instead of overwriting them, so a running rlock keeps its binary. Directories must
# stay as they are: they may be links, such as /bin, or have another owner and mode.
tar -tzf "$work/$name" | grep -v '/$' >"$work/files" || die "$name is not a release of rlock"
{ mkdir -p "$prefix" &&
    tar -xzf "$work/$name" -C "$prefix" --strip-components=1 -T "$work/files"; } ||
    die "cannot install to $prefix; run this as root or pass another PREFIX"
installed=$("$prefix/bin/rlock" --version) || die "$prefix/bin/rlock does not run on this machine"
printf 'installed %s as %s\n' "$installed" "$prefix/bin/rlock"
