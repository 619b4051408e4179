# shellcheck shell=sh
# Checks what a build needs, and installs missing programs on Debian and Ubuntu. Source it from sh or bash.
# The Makefile sets `caller`, the name in errors.

die() {
    printf '%s: %s\n' "${caller:-${0##*/}}" "$1" >&2
    exit 1
}

# Tests whether a program, or the file with this absolute path, is installed. (`command -v` would also
# find shell built-ins.)
present() {
    case $1 in
    /*) [ -e "$1" ] && return || return 1 ;;
    esac
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

# need PROGRAM:PACKAGE... installs each package whose program, or file, is missing.
need() {
    packages=
    for pair in "$@"; do
        present "${pair%%:*}" || packages="$packages ${pair#*:}"
    done
    [ -n "$packages" ] || return 0
    present apt-get || die "missing:$packages; install them (apt-get not found)"
    [ "$(id -u)" = 0 ] || present sudo || die "missing:$packages; install them (sudo not found)"

    printf 'installing:%s\n' "$packages"
    # If the update fails, an outdated package list may still do.
    apt update >/dev/null || :
    # shellcheck disable=SC2086 # One word per package.
    said=$(apt install --no-install-recommends $packages </dev/null) ||
        die "cannot install$packages: $(printf '%s\n' "$said" | tail -n 1)"

    # The package starts a server at boot, which is unwanted here.
    case $packages in
    *redis-server*)
        as_root service redis-server stop >/dev/null 2>&1 || :
        as_root update-rc.d redis-server disable >/dev/null 2>&1 || :
        ;;
    esac
}

# need_rust checks that a Rust of the required version and a C compiler are there. It installs neither,
# so that what is missing is said before anything else happens.
need_rust() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    # rustup may have installed it without changing PATH, and another cargo may be in its way.
    recent_cargo || PATH="${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH"
    missing=
    if ! present cargo; then
        missing="Rust $wanted or later (https://rustup.rs)"
    elif ! recent_cargo; then
        found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
        missing="Rust $wanted or later (https://rustup.rs; cargo here is ${found:-not usable; run rustup default stable})"
    fi
    printf '#include <stdio.h>\n' | cc -fsyntax-only -x c - 2>/dev/null ||
        missing="${missing:+$missing, and }a C compiler (on Debian or Ubuntu: apt install gcc libc6-dev)"
    [ -z "$missing" ] || die "install $missing"
}

recent_cargo() {
    found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) && [ -n "$found" ] &&
        [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ]
}

# need_target TARGET installs what cargo needs to build for a musl TARGET.
need_target() {
    rustc --print target-libdir --target "$1" >/dev/null 2>&1 || die "unknown target: $1"
    [ -d "$(rustc --print target-libdir --target "$1")" ] || present rustup ||
        die "no standard library for $1; install it (rustup not found)"
    need musl-gcc:musl-tools
    [ -d "$(rustc --print target-libdir --target "$1")" ] && return
    rustup target add "$1" || die "cannot install the standard library for $1"
}

# need_tool VERSION PROGRAM builds that version of a cargo subcommand, unless it is there.
need_tool() {
    PATH="$PWD/target/tools/bin:$PATH"
    cargo install --quiet --locked --root target/tools --version "$1" "$2" || die "cannot install $2"
}

# need_packers installs what packs a release.
need_packers() {
    need_tool 3.8.0 cargo-deb
    need_tool 0.21.1 cargo-generate-rpm
    need apt-ftparchive:apt-utils
}
