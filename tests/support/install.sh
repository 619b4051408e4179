# shellcheck shell=sh
# Installs what is missing, on Debian and Ubuntu. To be sourced, by sh or bash.

die() {
    printf '%s: %s\n' "${0##*/}" "$1" >&2
    exit 1
}

# Is there a program of this name? (`command -v` would also find what the shell has built in.)
present() {
    (
        IFS=:
        for directory in $PATH; do
            [ -x "$directory/$1" ] && exit 0
        done
        exit 1
    )
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" 2>&1
}

# need PROGRAM:PACKAGE... installs each package whose program is missing.
need() {
    packages=
    for pair in "$@"; do
        present "${pair%%:*}" || packages="$packages ${pair#*:}"
    done
    [ -n "$packages" ] || return 0
    present apt-get || die "please install:$packages (there is no apt-get to do it with)"
    [ "$(id -u)" = 0 ] || present sudo || die "please install:$packages (there is no sudo to do it with)"

    printf 'installing:%s\n' "$packages"
    # An outdated list of packages is worth a try.
    apt update >/dev/null || :
    # shellcheck disable=SC2086 # One word a package.
    said=$(apt install --no-install-recommends $packages </dev/null) ||
        die "cannot install$packages: $(printf '%s\n' "$said" | tail -n 1)"

    # The package starts a server with the machine. Nobody has asked for that.
    case $packages in
    *redis-server*)
        as_root service redis-server stop >/dev/null 2>&1 || :
        as_root update-rc.d redis-server disable >/dev/null 2>&1 || :
        ;;
    esac
}

# Rust, as rustup installs it, and a linker for it.
need_rust() {
    present cargo || PATH="${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH"
    present cargo || die "there is no cargo; get Rust from https://rustup.rs"
    need cc:gcc cc:libc6-dev
}
